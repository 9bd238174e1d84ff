#include "cmd/tp2-bench/compare.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/json.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/compare.h"
#include "libcore/bench/result.h"
#include "libcore/report/exit_code.h"
#include "libcore/report/output.h"
#include "libcore/report/table.h"

namespace tp2::bench {
namespace {

std::string Text(const Flags& flags, const Comparison& comparison) {
  std::string text =
      absl::StrCat("# tp2-bench compare  ", flags.before_path, "  ", flags.after_path, "\n");
  for (const std::string& difference : comparison.differences) {
    absl::StrAppend(&text, "# differs   ", difference, "\n");
  }
  Table table({{"cell", ""},
               {"series", ""},
               {"before", "(us)"},
               {"after", "(us)"},
               {"ratio", ""},
               {"noise", "(us)"},
               {"verdict", ""}});
  for (const CellComparison& cell : comparison.cells) {
    table.AddRow({cell.cell, cell.series, FormatUs(cell.before_us), FormatUs(cell.after_us),
                  absl::StrFormat("%.3f", cell.ratio()), FormatUs(cell.noise_us),
                  cell.is_regression ? "slower" : "ok"});
  }
  absl::StrAppend(&text, table.Render(), "# ",
                  comparison.has_regression() ? "slower" : "no regression", "\n");
  return text;
}

}  // namespace

absl::StatusOr<int> PrintComparison(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const Json before, ReadResult(flags.before_path));
  TP2_ASSIGN_OR_RETURN(const Json after, ReadResult(flags.after_path));
  TP2_ASSIGN_OR_RETURN(const Comparison comparison,
                       CompareResults(before, after,
                                      {.max_regression_pct = flags.max_regression_pct,
                                       .goes_across = flags.goes_across}));
  TP2_RETURN_IF_ERROR(PrintResult(Text(flags, comparison)));
  return comparison.has_regression() ? kExitCheckFailed : kExitOk;
}

}  // namespace tp2::bench
