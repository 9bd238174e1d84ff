// What takes long or loads the machine: fuzzing a live worker, load beside a paying client, soak.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cmd/dspark-selftest/fault_bench.h"
#include "libcore/base/hiccups.h"
#include "libcore/base/json.h"

namespace tp2::selftest {

Json HiccupJson(const Hiccups& hiccups);

struct StressOptions {
  int64_t frames = 100'000;  // fuzz
  int connections = 1'000;   // load
  int steps = 400;           // load
  int64_t seconds = 60;      // soak
  int worker_pid = 0;        // of a worker on this machine: its memory and descriptors; 0: unknown
  uint64_t seed = 1;
};

// Each returns its figures; an error says what the worker did wrong.
absl::StatusOr<Json> RunFuzz(FaultBench* bench, const StressOptions& options);
absl::StatusOr<Json> RunLoad(FaultBench* bench, const StressOptions& options);
absl::StatusOr<Json> RunSoak(FaultBench* bench, const StressOptions& options);

}  // namespace tp2::selftest
