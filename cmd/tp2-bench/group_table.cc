#include "cmd/tp2-bench/group_table.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cmd/common/interrupt.h"
#include "libcore/base/percentile.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/group_bytes.h"
#include "libcore/bench/timed_engine.h"
#include "libcore/checkpoint/shard_set.h"
#include "libcore/report/table.h"

namespace tp2::bench {
namespace {

// STEPs over which the distinct experts are counted.
constexpr int kExpertSteps = 8;

struct MeasuredCell {
  Cell cell;
  CellGroups groups;
  double plain_us = 0;  // primary series of the plain drafter
};

double Us(const std::vector<int64_t>& values_ns) {
  return static_cast<double>(NearestRank(values_ns, 50)) * 1e-3;
}

// The cell of the result that the plain drafter measured; null when it was interrupted before.
Json* FindCell(Json& result, const std::string& mode, const Cell& cell) {
  for (Json& entry : result["cells"]) {
    if (entry["mode"] == mode && entry["requests"] == cell.requests &&
        entry["n_out"] == cell.n_out) {
      return &entry;
    }
  }
  return nullptr;
}

using ValueText = std::function<std::string(const MeasuredCell&, int group)>;

std::string GroupTable(const std::string& title, const std::string& unit,
                       const std::vector<MeasuredCell>& measured, const ValueText& value,
                       bool has_sums) {
  std::vector<TableColumn> columns = {{"req", "(n)"}, {"n_out", "(n)"}};
  for (const char* name : kGroupNames) columns.push_back({name, unit});
  if (has_sums) {
    for (const char* name : {"sum", "timed", "plain"}) columns.push_back({name, unit});
  }
  Table table(columns);
  for (const MeasuredCell& one : measured) {
    std::vector<std::string> row = {absl::StrCat(one.cell.requests), absl::StrCat(one.cell.n_out)};
    for (int group = 0; group < kGroupCount; ++group) row.push_back(value(one, group));
    if (has_sums) {
      row.push_back(FormatUs(Us(one.groups.sum_ns)));
      row.push_back(FormatUs(Us(one.groups.device_ns)));
      row.push_back(FormatUs(one.plain_us));
    }
    table.AddRow(std::move(row));
  }
  return absl::StrCat("#\n# ", title, "\n", table.Render());
}

std::string Tables(const std::string& mode, const std::vector<MeasuredCell>& measured,
                   double copy_gb_per_s) {
  const auto us = [](const MeasuredCell& one, int group) {
    return FormatUs(Us(one.groups.ns[group]));
  };
  const auto megabytes = [](const MeasuredCell& one, int group) {
    return absl::StrFormat("%.1f", static_cast<double>(one.groups.bytes[group]) * 1e-6);
  };
  const auto percent = [copy_gb_per_s](const MeasuredCell& one, int group) -> std::string {
    const double group_us = Us(one.groups.ns[group]);
    if (group_us <= 0) return "-";
    const double gb_per_s = static_cast<double>(one.groups.bytes[group]) / group_us * 1e-3;
    return absl::StrFormat("%.1f", 100 * gb_per_s / copy_gb_per_s);
  };
  return absl::StrCat(
      GroupTable(absl::StrCat("time per group, ", mode,
                              ", p50; timed: the instrumented STEP, "
                              "plain: the same without"),
                 "(us)", measured, us, true),
      GroupTable("bytes that a group must move", "(MB)", measured, megabytes, false),
      GroupTable(absl::StrFormat("bytes / time in percent of %.0f GB/s", copy_gb_per_s), "(%)",
                 measured, percent, false));
}

absl::StatusOr<FormLookup> FormsOfModel(const Flags& flags, const DrafterConfig& config) {
  TP2_ASSIGN_OR_RETURN(const ShardSet shards, OpenShards(flags.model_dir));
  return FormsOf(config, shards.tensors);
}

absl::StatusOr<std::vector<ShardPlan>> PlansOf(const std::string& mode_name,
                                               const DrafterConfig& config) {
  TP2_ASSIGN_OR_RETURN(const Mode mode, FindMode(mode_name));
  std::vector<ShardPlan> plans;
  for (int rank = mode.first_rank; rank < mode.first_rank + mode.rank_count; ++rank) {
    TP2_ASSIGN_OR_RETURN(ShardPlan plan, MakeShardPlan(config, mode.tp, rank));
    plans.push_back(plan);
  }
  return plans;
}

}  // namespace

absl::Status AddGroups(const Flags& flags, const std::string& mode, const std::vector<Cell>& cells,
                       Session& session) {
  TP2_ASSIGN_OR_RETURN(TimedEngine timed, MakeTimedEngine(session.OptionsOf(mode)));
  const DrafterConfig& config = timed.engine->info().config;
  TP2_ASSIGN_OR_RETURN(const FormLookup forms, FormsOfModel(flags, config));
  TP2_ASSIGN_OR_RETURN(const std::vector<ShardPlan> plans, PlansOf(mode, config));
  std::vector<MeasuredCell> measured;
  for (const Cell& cell : cells) {
    Json* entry = FindCell(session.result(), mode, cell);
    if (entry == nullptr || cmd::InterruptSignal() != 0) break;
    MeasuredCell one = {.cell = cell, .groups = {}};
    TP2_RETURN_IF_ERROR(FillWindows(*timed.engine, flags.context));
    TP2_ASSIGN_OR_RETURN(const std::vector<double> experts,
                         CountExperts(*timed.engine, cell, kExpertSteps));
    TP2_ASSIGN_OR_RETURN(one.groups, RunGroups(timed, cell, session.run_options()));
    one.groups.distinct_experts = experts;
    one.groups.bytes = GroupBytes(config, plans, forms,
                                  {.requests = cell.requests,
                                   .n_out = cell.n_out,
                                   .window_rows = config.window,
                                   .distinct_experts = experts});
    one.plain_us = (*entry)[(*entry)["primary"].get<std::string>()]["p50"].get<double>();
    (*entry)["groups"] = GroupsJson(one.groups, session.copy_gb_per_s());
    measured.push_back(std::move(one));
  }
  if (measured.empty()) return absl::OkStatus();
  return session.Print(Tables(mode, measured, session.copy_gb_per_s()));
}

}  // namespace tp2::bench
