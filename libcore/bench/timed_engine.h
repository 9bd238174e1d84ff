// A drafter whose draft step reads a clock between groups of operations. Same bits; the clock's
// readings cost time, so it stands beside the plain drafter and never replaces it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "libcore/bench/cells.h"
#include "libcore/bench/group_clock.h"
#include "libcore/bench/result.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/drafter/step_engine.h"

namespace tp2::bench {

struct TimedEngine {
  std::unique_ptr<GroupClock> clock;   // outlives the engine
  std::unique_ptr<StepEngine> engine;  // null until made
};

// Modes whose ranks share one stream or thread; others: kUnimplemented. Errors: as MakeEngine.
absl::StatusOr<TimedEngine> MakeTimedEngine(const EngineOptions& options);

// The CUDA half of MakeTimedEngine: timed_engine_cuda.cc, or timed_engine_no_cuda.cc.
absl::StatusOr<TimedEngine> MakeTimedCudaEngine(EngineParts parts, const EngineOptions& options);

// Runs a cell on a timed engine; bytes and experts are left to the caller.
absl::StatusOr<CellGroups> RunGroups(TimedEngine& timed, const Cell& cell,
                                     const RunOptions& options);

}  // namespace tp2::bench
