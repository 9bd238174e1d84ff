#include "cmd/tp2-bench/run.h"

#include "cmd/tp2-bench/collectives.h"
#include "cmd/tp2-bench/compare.h"
#include "cmd/tp2-bench/decide.h"
#include "cmd/tp2-bench/grid.h"
#include "cmd/tp2-bench/insert.h"
#include "cmd/tp2-bench/list.h"
#include "cmd/tp2-bench/memory.h"
#include "libcore/report/exit_code.h"

namespace tp2::bench {
namespace {

int Report(const absl::StatusOr<int>& code) {
  return code.ok() ? *code : ReportStatus("tp2-bench", code.status());
}

}  // namespace

int Run(const Flags& flags) {
  switch (flags.command) {
    case Command::kGrid:
      return Report(RunGrid(flags));
    case Command::kInsert:
      return Report(RunInserts(flags));
    case Command::kMemory:
      return ReportStatus("tp2-bench", PrintMemory(flags));
    case Command::kCollectives:
      return ReportStatus("tp2-bench", PrintCollectives(flags.collectives));
    case Command::kDecide:
      return ReportStatus("tp2-bench", PrintDecision(flags));
    case Command::kList:
      return ReportStatus("tp2-bench", PrintList());
    case Command::kCompare:
      return Report(PrintComparison(flags));
  }
  return kExitInternal;
}

}  // namespace tp2::bench
