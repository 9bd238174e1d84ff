#include "cmd/tp2-bench/insert.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cmd/common/interrupt.h"
#include "cmd/tp2-bench/session.h"
#include "libcore/base/percentile.h"
#include "libcore/base/status_macros.h"
#include "libcore/report/progress.h"
#include "libcore/report/table.h"

namespace tp2::bench {
namespace {

std::string PercentileUs(const std::vector<int64_t>& values_ns, int percent) {
  if (values_ns.empty()) return "-";
  return FormatUs(static_cast<double>(NearestRank(values_ns, percent)) * 1e-3);
}

// Host wall of Insert alone, and, where there is a device clock, the insert's part of a STEP with
// one request and one position.
absl::StatusOr<CellTimes> MeasureInsert(StepEngine& engine, int rows, const RunOptions& options) {
  TP2_RETURN_IF_ERROR(FillWindows(engine));
  TP2_ASSIGN_OR_RETURN(CellTimes times, RunInsert(engine, rows, options));
  if (engine.info().backend == "cpu") return times;
  const Cell cell = {.requests = 1, .n_out = 1, .insert_rows = rows};
  TP2_RETURN_IF_ERROR(FillWindows(engine));
  TP2_ASSIGN_OR_RETURN(const CellTimes step, RunCell(engine, cell, options));
  times.insert_device_ns = step.insert_device_ns;
  return times;
}

Table InsertTable() {
  return Table({{"mode", "", 8},
                {"rows", "(n)"},
                {"host p50", "(us)"},
                {"p99", "(us)", 7},
                {"mad", "(%)", 5},
                {"device p50", "(us)"},
                {"p99", "(us)", 7},
                {"state", "", 9}});
}

absl::Status MeasureRows(const Flags& flags, const std::string& mode, int rows, StepEngine& engine,
                         Session& session) {
  CellTimes times;
  {
    Progress progress(absl::StrCat(mode, " insert ", rows));
    RunOptions options = session.run_options();
    options.after_each = [&](int done) { progress.Update(done, flags.replays); };
    TP2_ASSIGN_OR_RETURN(times, MeasureInsert(engine, rows, options));
  }
  const bool has_device = !times.insert_device_ns.empty();
  const char* primary_name = has_device ? "insert_device_us" : "insert_host_us";
  const std::string prefix = mode == "one-card" ? "" : mode + " ";
  const Json cell = {{"cell", absl::StrCat(prefix, "insert ", rows)},
                     {"mode", mode},
                     {"rows", rows},
                     {"primary", primary_name},
                     {"insert_host_us", SeriesUs(times.host_ns)},
                     {"insert_device_us", SeriesUs(times.insert_device_ns)}};
  const std::vector<int64_t>& primary = has_device ? times.insert_device_ns : times.host_ns;
  const std::string state = session.AddCell(cell, primary);
  const double mad_pct = 100.0 * static_cast<double>(MedianDeviation(primary)) /
                         static_cast<double>(NearestRank(primary, 50));
  return session.Print(InsertTable().RowText(
      {mode, absl::StrCat(rows), PercentileUs(times.host_ns, 50), PercentileUs(times.host_ns, 99),
       absl::StrFormat("%.1f", mad_pct), PercentileUs(times.insert_device_ns, 50),
       PercentileUs(times.insert_device_ns, 99), state}));
}

}  // namespace

absl::StatusOr<int> RunInserts(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Start(flags));
  for (const std::string& mode : flags.modes) {
    TP2_ASSIGN_OR_RETURN(const std::unique_ptr<StepEngine> engine, session->MakeEngine(mode));
    if (mode == flags.modes.front()) {
      TP2_RETURN_IF_ERROR(session->PrintHeader(*engine));
      TP2_RETURN_IF_ERROR(session->Print(InsertTable().HeaderText()));
    }
    for (const int rows : flags.rows) {
      if (cmd::InterruptSignal() != 0) break;
      TP2_RETURN_IF_ERROR(MeasureRows(flags, mode, rows, *engine, *session));
    }
  }
  return session->Finish();
}

}  // namespace tp2::bench
