// One digest over everything a drafter puts out in a run: drafts, confidence logits, margins, base
// logits and head hidden. Two runs with one digest drafted the same bits.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "libcore/drafter/step_engine.h"

namespace tp2 {

struct SelfRunOptions {
  int rounds = 41;
  uint64_t seed = 1;
  // RunSelf: after every round with their number so far; false ends the run. May be empty.
  std::function<absl::StatusOr<bool>(int)> after_round = {};
};

struct SelfRunResult {
  uint64_t digest = 0;
  int rounds = 0;
  int drafts = 0;  // tokens in all
  // Grid only: STEPs whose plain drafts were not those with margins.
  int plain_differences = 0;
};

// Drives `engine`, whose slots it resets, with Workload(seed). Errors: the engine's.
absl::StatusOr<SelfRunResult> RunSelf(StepEngine& engine, const SelfRunOptions& options);

// Every graph key (ops/graph_key.h) instead of random rounds: inserts of both kinds at both ends of
// every bucket, then every number of requests and drafts, each with margins and plain. Options
// other than the seed do not matter.
absl::StatusOr<SelfRunResult> RunGrid(StepEngine& engine, const SelfRunOptions& options);

}  // namespace tp2
