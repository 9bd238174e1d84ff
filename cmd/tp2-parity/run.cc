#include "cmd/tp2-parity/run.h"

#include <iostream>

#include "cmd/tp2-parity/captures.h"
#include "cmd/tp2-parity/shards.h"
#include "libcore/base/digest.h"
#include "libcore/base/status_macros.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/audit.h"
#include "libcore/parity/self_run.h"
#include "libcore/report/exit_code.h"

namespace tp2::parity {
namespace {

void WarnOfMissing(const StepEngine& engine) {
  const tuning::TableUse kernels = engine.kernel_table_use();
  if (kernels.missing == 0) return;
  std::cerr << "tp2-parity: warning: kernels: " << tuning::Describe(kernels) << "\n";
}

absl::StatusOr<bool> SelfIsEqual(const Flags& flags) {
  std::string reference = flags.expected_digest;
  bool is_equal = true;
  for (const std::string& mode : flags.modes) {
    TP2_ASSIGN_OR_RETURN(const std::unique_ptr<StepEngine> engine,
                         MakeEngine({.model_dir = flags.model_dir,
                                     .backend = flags.backend,
                                     .mode = mode,
                                     .thread_count = flags.threads,
                                     .device_uuids = flags.device_uuids,
                                     .uses_graphs = !flags.is_eager,
                                     .kernels_path = flags.kernels_path}));
    WarnOfMissing(*engine);
    const SelfRunOptions options = {.rounds = flags.rounds, .seed = flags.seed};
    TP2_ASSIGN_OR_RETURN(const SelfRunResult result,
                         flags.runs_grid ? RunGrid(*engine, options) : RunSelf(*engine, options));
    const std::string digest = Hex64(result.digest);
    std::cout << mode << " " << digest << " " << result.rounds << "\n";
    if (result.plain_differences > 0) {
      std::cout << mode << " drafts other tokens without margins in " << result.plain_differences
                << " STEPs\n";
    }
    if (reference.empty()) reference = digest;
    is_equal = is_equal && digest == reference && result.plain_differences == 0;
  }
  std::cout << (is_equal ? "equal" : "differ") << std::endl;
  return is_equal;
}

absl::StatusOr<bool> ReplicasAreEqual(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const std::unique_ptr<StepEngine> engine,
                       MakeEngine({.model_dir = flags.model_dir,
                                   .backend = flags.backend,
                                   .mode = flags.mode,
                                   .thread_count = flags.threads,
                                   .device_uuids = flags.device_uuids,
                                   .uses_graphs = !flags.is_eager,
                                   .kernels_path = flags.kernels_path}));
  WarnOfMissing(*engine);
  TP2_ASSIGN_OR_RETURN(const AuditResult result, RunAudit(*engine, {.rounds = flags.rounds,
                                                                    .seed = flags.seed,
                                                                    .every = flags.audit_every,
                                                                    .plant = flags.planted}));
  std::cout << result.rounds << " rounds, " << result.audits << " audits of " << result.tensors
            << " tensors, " << result.bytes << " bytes each\n";
  if (!result.difference.empty()) std::cout << result.difference << "\n";
  std::cout << (result.difference.empty() ? "equal" : "differ") << std::endl;
  return result.difference.empty();
}

}  // namespace

int Run(const Flags& flags) {
  absl::StatusOr<bool> has_passed = false;
  switch (flags.command) {
    case Command::kSelf:
      has_passed = SelfIsEqual(flags);
      break;
    case Command::kAudit:
      has_passed = ReplicasAreEqual(flags);
      break;
    case Command::kShards:
      has_passed = ShardsAreEqual(flags);
      break;
    case Command::kRun:
      has_passed = CaptureIsExplained(flags);
      break;
    case Command::kInspect:
      has_passed = InspectCapture(flags);
      break;
    case Command::kExplain:
      has_passed = ExplainBlock(flags);
      break;
  }
  if (!has_passed.ok()) return ReportStatus("tp2-parity", has_passed.status());
  return *has_passed ? kExitOk : kExitCheckFailed;
}

}  // namespace tp2::parity
