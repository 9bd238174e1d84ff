#include "cmd/tp2-bench/grid.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cmd/common/interrupt.h"
#include "cmd/tp2-bench/group_table.h"
#include "cmd/tp2-bench/pair_table.h"
#include "cmd/tp2-bench/session.h"
#include "libcore/base/error.h"
#include "libcore/base/percentile.h"
#include "libcore/base/status_macros.h"
#include "libcore/report/progress.h"
#include "libcore/report/table.h"

namespace tp2::bench {
namespace {

Table GridTable() {
  return Table({{"mode", "", 8},
                {"req", "(n)"},
                {"n_out", "(n)"},
                {"rows", "(n)"},
                {"device p50", "(ms)"},
                {"p99", "(ms)", 7},
                {"mad", "(%)", 5},
                {"last rank", "(ms)"},
                {"host p50", "(ms)"},
                {"p99", "(ms)", 7},
                {"insert p50", "(ms)"},
                {"SM", "(MHz)"},
                {"state", "", 9}});
}

std::string PercentileMs(const std::vector<int64_t>& values_ns, int percent) {
  if (values_ns.empty()) return "-";
  return FormatMs(static_cast<double>(NearestRank(values_ns, percent)) * 1e-6);
}

std::string CellId(const std::string& mode, const Cell& cell) {
  std::string id = absl::StrCat(mode, " ", cell.requests, "x", cell.n_out);
  if (cell.insert_rows > 0) absl::StrAppend(&id, "+", cell.insert_rows);
  return id;
}

Json CellJson(const std::string& mode, const Cell& cell, const CellTimes& times) {
  return {{"cell", CellId(mode, cell)},
          {"mode", mode},
          {"requests", cell.requests},
          {"n_out", cell.n_out},
          {"insert_rows", cell.insert_rows},
          {"primary", times.draft_device_ns.empty() ? "step_host_us" : "draft_device_us"},
          {"draft_device_us", SeriesUs(times.draft_device_ns)},
          {"last_rank_draft_device_us", SeriesUs(times.last_draft_device_ns)},
          {"insert_device_us", SeriesUs(times.insert_device_ns)},
          {"step_host_us", SeriesUs(times.host_ns)}};
}

std::string CellRow(const Table& table, const std::string& mode, const Cell& cell,
                    const CellTimes& times, const std::string& state, const Session& session) {
  const std::vector<int64_t>& primary =
      times.draft_device_ns.empty() ? times.host_ns : times.draft_device_ns;
  const double mad_pct = 100.0 * static_cast<double>(MedianDeviation(primary)) /
                         static_cast<double>(NearestRank(primary, 50));
  const auto reading = session.last_reading();
  const bool has_clock = reading.has_value() && reading->sm_clock_mhz.has_value();
  return table.RowText({mode, absl::StrCat(cell.requests), absl::StrCat(cell.n_out),
                        absl::StrCat(cell.insert_rows), PercentileMs(times.draft_device_ns, 50),
                        PercentileMs(times.draft_device_ns, 99), absl::StrFormat("%.1f", mad_pct),
                        PercentileMs(times.last_draft_device_ns, 50),
                        PercentileMs(times.host_ns, 50), PercentileMs(times.host_ns, 99),
                        PercentileMs(times.insert_device_ns, 50),
                        has_clock ? absl::StrCat(*reading->sm_clock_mhz) : "-", state});
}

std::vector<Cell> CellsOf(const Flags& flags) {
  std::vector<Cell> cells;
  for (const int requests : flags.requests) {
    for (const int n_out : flags.n_out) {
      cells.push_back({.requests = requests,
                       .n_out = n_out,
                       .insert_rows = flags.insert_rows,
                       .wants_margins = flags.wants_margins,
                       .first_slot = flags.context.slot_count - requests});
    }
  }
  return cells;
}

absl::Status RunCells(const Flags& flags, const std::string& mode, const Table& table,
                      Session& session, bool is_first) {
  TP2_ASSIGN_OR_RETURN(const std::unique_ptr<StepEngine> engine, session.MakeEngine(mode));
  if (is_first) {
    TP2_RETURN_IF_ERROR(session.PrintHeader(*engine));
    TP2_RETURN_IF_ERROR(session.Print(table.HeaderText()));
  }
  for (const Cell& cell : CellsOf(flags)) {
    if (cmd::InterruptSignal() != 0) break;
    CellTimes times;
    {
      Progress progress(CellId(mode, cell));
      RunOptions options = session.run_options();
      options.after_each = [&](int done) { progress.Update(done, flags.replays); };
      TP2_RETURN_IF_ERROR(FillWindows(*engine, flags.context));
      TP2_ASSIGN_OR_RETURN(times, RunCell(*engine, cell, options));
    }
    const std::string state =
        session.AddCell(CellJson(mode, cell, times),
                        times.draft_device_ns.empty() ? times.host_ns : times.draft_device_ns);
    TP2_RETURN_IF_ERROR(session.Print(CellRow(table, mode, cell, times, state, session)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> RunGrid(const Flags& flags) {
  const int most_requests = *std::max_element(flags.requests.begin(), flags.requests.end());
  if (flags.context.slot_count < most_requests) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = "--slots",
                      .expected = absl::StrCat("at least the ", most_requests, " that draft"),
                      .got = absl::StrCat(flags.context.slot_count),
                      .next = "give more slots or fewer --requests"});
  }
  TP2_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Start(flags));
  const Table table = GridTable();
  for (const std::string& mode : flags.modes) {
    TP2_RETURN_IF_ERROR(RunCells(flags, mode, table, *session, mode == flags.modes.front()));
  }
  if (flags.has_groups) {
    for (const std::string& mode : flags.modes) {
      TP2_RETURN_IF_ERROR(AddGroups(flags, mode, CellsOf(flags), *session));
    }
  }
  TP2_RETURN_IF_ERROR(session->Print(PairTable(session->result())));
  return session->Finish();
}

}  // namespace tp2::bench
