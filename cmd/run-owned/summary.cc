#include "cmd/run-owned/summary.h"

#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/build_info.h"

namespace tp2::owned {
namespace {

// Whether the job's first process ran and its end is known.
bool HasChild(const RunEnd& end) { return end.verdict != Verdict::kCannotRun; }

Json ChildJson(const RunEnd& end) {
  Json json = {{"exit_code", nullptr}, {"signal", nullptr}};
  if (!HasChild(end)) return json;
  if (WIFSIGNALED(end.wait_status)) {
    json["signal"] = WTERMSIG(end.wait_status);
  } else {
    json["exit_code"] = WEXITSTATUS(end.wait_status);
  }
  return json;
}

Json CardsJson(const Cards& cards, const RunRecord& record) {
  Json list = Json::array();
  for (size_t rank = 0; rank < cards.cards.size(); ++rank) {
    Json card = telemetry::ToJson(cards.cards[rank]);
    card["rank"] = rank;
    card["is_verified"] = cards.helper.has_value();
    card["telemetry"] =
        rank < record.totals.cards().size() ? record.totals.cards()[rank].ToJson() : Json(nullptr);
    list.push_back(std::move(card));
  }
  return list;
}

std::string EndText(const RunEnd& end) {
  switch (end.verdict) {
    case Verdict::kChild:
      return absl::StrCat("child ", ChildText(end.wait_status));
    case Verdict::kCannotRun:
      return "the command cannot run";
    case Verdict::kCap:
      return "ended at the cap";
    case Verdict::kPermitWithdrawn:
      return "ended because the permit was withdrawn";
    case Verdict::kSignal:
      return absl::StrCat("ended by signal ", end.signal_number);
    case Verdict::kStuck:
      return "something could not be killed";
    case Verdict::kTelemetryLost:
      return "ended because telemetry was lost";
    case Verdict::kGuardLost:
      return "ended because the guard was lost";
    default:
      return absl::StrCat("child ", ChildText(end.wait_status), ", but ",
                          std::string(VerdictName(end.verdict)));
  }
}

}  // namespace

Json Summarize(const Options& options, const Cards& cards, const RunRecord& record,
               const std::string& log_failure) {
  const BuildInfo build = GetBuildInfo();
  Json json = {{"schema", "run-owned/1"},
               {"tool", {{"version", build.version}, {"git", build.git_id}}},
               {"mode", ModeName(options.mode)},
               {"command", options.command},
               {"started_utc", record.started_utc},
               {"duration_s", record.duration_s},
               {"cap_s", static_cast<double>(options.cap_ms) / 1000},
               {"verdict", VerdictName(record.end.verdict)},
               {"exit_code", ExitCodeOf(record.end)},
               {"child", ChildJson(record.end)},
               {"cards", CardsJson(cards, record)},
               {"leftovers", record.leftovers},
               {"warnings", record.warnings}};
  json["driver"] = nullptr;
  if (cards.helper.has_value()) json["driver"] = cards.helper->driver_version();
  json["permit"] = nullptr;
  if (!options.permit_path.empty()) {
    json["permit"] = {{"file", options.permit_path},
                      {"name", options.permit_name},
                      {"is_held", record.is_permit_held}};
  }
  json["control_group"] = nullptr;
  if (!record.cgroup_path.empty()) json["control_group"] = record.cgroup_path;
  json["power_sum_max_mw"] = nullptr;
  if (record.totals.power_sum_max_mw().has_value()) {
    json["power_sum_max_mw"] = *record.totals.power_sum_max_mw();
  }
  json["samples"] = record.totals.sample_count();
  json["is_telemetry_lost"] = record.is_telemetry_lost;
  json["log"] = options.log_path;
  json["log_failure"] = log_failure.empty() ? Json(nullptr) : Json(log_failure);
  json["events"] = Json::array();
  for (const Event& event : record.events) {
    json["events"].push_back({{"at_s", event.at_s}, {"text", event.text}});
  }
  if (!log_failure.empty()) {
    json["last_samples"] = Json::array();
    for (const telemetry::Sample& sample : record.last_samples) {
      json["last_samples"].push_back(ToJson(sample));
    }
  }
  return json;
}

std::string LastLine(const Options& options, const RunRecord& record) {
  const int64_t seconds = static_cast<int64_t>(record.duration_s);
  const std::optional<uint64_t> peak_mw = record.totals.power_sum_max_mw();
  return absl::StrCat("run-owned: ", EndText(record.end), " after ",
                      absl::StrFormat("%dm%02ds", seconds / 60, seconds % 60), "; peak ",
                      peak_mw.has_value() ? absl::StrCat(*peak_mw / 1000, " W") : "power unknown",
                      "; permit ",
                      options.permit_path.empty() ? "not needed"
                      : record.is_permit_held     ? "held"
                                                  : "withdrawn",
                      "; log ", options.log_path, "\n");
}

}  // namespace tp2::owned
