#include "libcore/parity/mutation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/drafter/cpu_drafter-inl.h"
#include "libcore/parity/mutated_ops.h"

namespace tp2 {
namespace {

constexpr MutationInfo kMutations[] = {
    {Mutation::kBlockPosition, "block-position", "the block rotated one position early"},
    {Mutation::kCausalBlock, "causal-block", "block rows do not see later block rows"},
    {Mutation::kQueryNorm, "query-norm", "V4's norm of every query head on V4.1"},
    {Mutation::kOwnPreMix, "own-pre-mix", "each sublayer collapses with its own mix"},
    {Mutation::kTransposedMix, "transposed-mix", "the stream combination transposed"},
    {Mutation::kZeroRows, "zero-rows", "missing context rows attended to as zeros"},
    {Mutation::kScaledSink, "scaled-sink", "the sink divided by sqrt(head_dim) too"},
    {Mutation::kRoutingBias, "routing-bias", "the selection bias inside the routing weights"},
    {Mutation::kGateClamp, "gate-clamp", "the gate clamped on both sides"},
    {Mutation::kNoSharedExpert, "no-shared-expert", "the shared expert left out"},
    {Mutation::kPostNormConfidence, "post-norm-confidence", "confidence from the normed hidden"},
    {Mutation::kReversedTaps, "reversed-taps", "taps concatenated in reverse (window B)"},
    {Mutation::kNoiseZero, "noise-zero", "token 0 as the noise token"},
    {Mutation::kSwappedHalves, "swapped-halves", "each half of wo_b fed the other's inputs"},
    {Mutation::kWrongCodebook, "wrong-codebook", "mul1 weights decoded as mcg"},
};

}  // namespace

std::span<const MutationInfo> Mutations() { return kMutations; }

absl::StatusOr<Mutation> FindMutation(std::string_view name) {
  std::string names;
  for (const MutationInfo& info : kMutations) {
    if (name == info.name) return info.mutation;
    absl::StrAppend(&names, names.empty() ? "" : ", ", info.name);
  }
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      {.what = "mutation", .expected = names, .got = std::string(name), .where = "", .next = ""});
}

absl::StatusOr<std::unique_ptr<StepEngine>> MakeMutatedEngine(const std::string& model_dir,
                                                              Mutation mutation, int thread_count) {
  TP2_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(model_dir));
  TP2_ASSIGN_OR_RETURN(const ShardPlan plan, MakeShardPlan(checkpoint->config(), 1, 0));
  EngineInfo info =
      CpuEngineInfo(*checkpoint, {&plan, 1}, {.mode = "one-card", .thread_count = thread_count});
  auto ops = std::make_unique<MutatedOps>(info.config, thread_count, mutation);
  return std::make_unique<Drafter<MutatedOps>>(std::move(info), std::move(checkpoint),
                                               std::move(ops), std::span(&plan, 1));
}

}  // namespace tp2
