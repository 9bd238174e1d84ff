#include "cmd/tp2-bench/run.h"

#include "cmd/tp2-bench/collectives.h"
#include "cmd/tp2-bench/grid.h"
#include "cmd/tp2-bench/memory.h"
#include "libcore/report/exit_code.h"

namespace tp2::bench {

int Run(const Flags& flags) {
  switch (flags.command) {
    case Command::kGrid:
      return ReportStatus("tp2-bench", PrintGrid(flags));
    case Command::kMemory:
      return ReportStatus("tp2-bench", PrintMemory(flags));
    case Command::kCollectives:
      return ReportStatus("tp2-bench", PrintCollectives(flags.collectives));
  }
  return kExitInternal;
}

}  // namespace tp2::bench
