#include "libcore/parity/self_run.h"

#include <span>

#include "libcore/base/digest.h"
#include "libcore/base/status_macros.h"
#include "libcore/parity/workload.h"

namespace tp2 {

absl::StatusOr<SelfRunResult> RunSelf(StepEngine& engine, const SelfRunOptions& options) {
  Workload workload(engine.info().config, engine.info().max_positions, options.seed);
  Xxh3 digest;
  SelfRunResult result;
  for (; result.rounds < options.rounds; ++result.rounds) {
    const WorkloadRound round = workload.Next();
    for (const WorkloadRound::Reset& reset : round.resets) {
      TP2_RETURN_IF_ERROR(engine.ResetSlot(reset.slot, reset.base));
    }
    TP2_ASSIGN_OR_RETURN(
        const StepOutputs outputs,
        engine.Step({.entries = round.entries, .n_out = round.n_out, .wants_debug = true}));
    for (const EntryOutput& entry : outputs.entries) {
      digest.UpdateValues(std::span<const int32_t>(entry.tokens));
      digest.UpdateValues(std::span<const float>(entry.confidence_logit));
      digest.UpdateValues(std::span<const float>(entry.margin));
    }
    digest.UpdateValues(std::span<const float>(outputs.base_logits));
    digest.UpdateValues(std::span<const float>(outputs.head_hidden));
    result.drafts += static_cast<int>(outputs.entries.size()) * round.n_out;
  }
  result.digest = digest.Finish();
  return result;
}

}  // namespace tp2
