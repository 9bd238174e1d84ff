#include "cmd/tp2-tune/run.h"

#include "cmd/common/interrupt.h"
#include "cmd/tp2-tune/plan.h"
#include "cmd/tp2-tune/tables.h"
#include "cmd/tp2-tune/tune.h"
#include "libcore/report/exit_code.h"

namespace tp2::tune {
namespace {

absl::StatusOr<int> Execute(const Flags& flags) {
  switch (flags.command) {
    case Command::kPlan:
      return PrintPlan(flags);
    case Command::kRun:
      return TuneCards(flags);
    case Command::kCheck:
      return CheckTable(flags);
    case Command::kShow:
      return ShowTable(flags);
    case Command::kDiff:
      return DiffTables(flags);
  }
  return kExitInternal;
}

}  // namespace

int Run(const Flags& flags) {
  const absl::StatusOr<int> code = Execute(flags);
  if (code.ok()) return *code;
  const int reported = ReportStatus("tp2-tune", code.status());
  return absl::IsCancelled(code.status()) ? 128 + cmd::InterruptSignal() : reported;
}

}  // namespace tp2::tune
