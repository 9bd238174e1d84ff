// Negative controls: drafters with one deliberate fault each. A comparison that does not report
// them would not report the real mistake either. Source of the list: the bugs that ports of this
// model have had (research note dspark-model, sections 12 and 13).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/drafter/step_engine.h"

namespace tp2 {

enum class Mutation : uint8_t {
  kBlockPosition,
  kCausalBlock,
  kQueryNorm,
  kOwnPreMix,
  kTransposedMix,
  kZeroRows,
  kScaledSink,
  kRoutingBias,
  kGateClamp,
  kNoSharedExpert,
  kPostNormConfidence,
  kReversedTaps,
  kNoiseZero,
  kSwappedHalves,
  kWrongCodebook,
};

struct MutationInfo {
  Mutation mutation;
  const char* name;     // of --mutate
  const char* summary;  // the mistake, half a line
};

std::span<const MutationInfo> Mutations();

// Errors: kInvalidArgument with all names.
absl::StatusOr<Mutation> FindMutation(std::string_view name);

// A one-card CPU drafter with the fault. Errors: Checkpoint::Open's, MakeShardPlan's.
absl::StatusOr<std::unique_ptr<StepEngine>> MakeMutatedEngine(const std::string& model_dir,
                                                              Mutation mutation, int thread_count);

}  // namespace tp2
