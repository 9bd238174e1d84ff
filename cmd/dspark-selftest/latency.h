// How long a STEP takes in our own process and through the worker.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cmd/dspark-selftest/twin.h"
#include "libcore/base/json.h"

namespace tp2::selftest {

struct LatencyLine {
  std::string path;  // "in-process", or the transport: "tcp", "rdma"
  int requests = 0;
  int rows = 0;  // of each request
  int n_out = 0;
  int rounds = 0;
  double p50_ms = 0;  // nearest rank
  double p99_ms = 0;
  // Through the worker only, of each round what was not spent in the worker's engine; p50.
  double beyond_engine_ms = 0;
};

// Alternates both ways, round by round, so that both meet the same machine. Ends a cell early after
// 20 s, with at least three rounds.
absl::StatusOr<std::vector<LatencyLine>> MeasureLatency(Twin* twin, const std::string& transport,
                                                        int rounds);

Json LatencyJson(const LatencyLine& line);
std::string RenderLatency(const std::vector<LatencyLine>& lines);

}  // namespace tp2::selftest
