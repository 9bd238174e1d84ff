#include "libcore/server/admin_pages.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "libcore/base/build_info.h"
#include "libcore/base/json.h"
#include "libcore/server/card_pages.h"

namespace tp2::server {
namespace {

constexpr char kStyle[] =
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em;max-width:60em;color:#222}"
    "table{border-collapse:collapse;margin:.5em 0 1.5em}td,th{padding:.15em 1em .15em 0;"
    "text-align:left}td.n{text-align:right;font-variant-numeric:tabular-nums}"
    ".bar{background:#47a;display:inline-block;height:.8em}.bad{color:#b00}";

std::string Row(const std::string& name, const std::string& value) {
  return absl::StrCat("<tr><th scope=\"row\">", name, "</th><td>", EscapeHtml(value),
                      "</td></tr>\n");
}

std::string Ms(uint32_t us) { return absl::StrFormat("%.3f ms", us / 1e3); }

std::string SlotRows(const std::vector<contract::SlotInfo>& slots) {
  std::string html;
  for (const contract::SlotInfo& slot : slots) {
    absl::StrAppend(&html, "<tr><td class=\"n\">", slot.slot, "</td><td>",
                    contract::SlotStateName(slot.state), "</td><td class=\"n\">", slot.length,
                    "</td><td class=\"n\">", slot.window_rows, "</td></tr>\n");
  }
  return html;
}

// Doubling bins from the smallest time on; bars relative to the fullest.
std::string HistogramRows(const std::vector<uint32_t>& sorted_us) {
  if (sorted_us.empty()) return "<tr><td>no STEP yet</td></tr>\n";
  constexpr double kRatio = 1.25;
  std::vector<std::pair<double, int>> bins;  // upper bound in us, count
  double bound = std::max<double>(sorted_us.front(), 1) * kRatio;
  bins.emplace_back(bound, 0);
  for (const uint32_t us : sorted_us) {
    while (us > bound) {
      bound *= kRatio;
      bins.emplace_back(bound, 0);
    }
    ++bins.back().second;
  }
  int fullest = 0;
  for (const auto& [upper, count] : bins) fullest = std::max(fullest, count);
  std::string html;
  for (const auto& [upper, count] : bins) {
    absl::StrAppendFormat(&html,
                          "<tr><td class=\"n\">&le; %.3f ms</td><td class=\"n\">%d</td>"
                          "<td><span class=\"bar\" style=\"width:%.1fem\"></span></td></tr>\n",
                          upper / 1e3, count, 20.0 * count / fullest);
  }
  return html;
}

std::string ErrorRows(const Counts& counts) {
  if (counts.errors.empty()) return "<tr><td>none</td></tr>\n";
  std::string html;
  for (auto error = counts.errors.rbegin(); error != counts.errors.rend(); ++error) {
    const std::string time = absl::FormatTime(
        "%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(error->wall_ms), absl::UTCTimeZone());
    absl::StrAppend(&html, "<tr><td>", time, " UTC</td><td class=\"bad\">", EscapeHtml(error->text),
                    "</td></tr>\n");
  }
  return html;
}

}  // namespace

std::string EscapeHtml(const std::string& text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

HttpResponse AdminPages::Answer(const std::string& path) const {
  if (path == "/metrics") {
    return {
        .content_type = "text/plain; version=0.0.4; charset=utf-8",
        .body = server_->MetricsText() + (cards_ == nullptr ? "" : CardMetricsText(cards_->Now()))};
  }
  if (path == "/healthz") return Liveness();
  if (path == "/readyz") return Readiness();
  if (path == "/status") return {.content_type = "application/json", .body = StatusJson()};
  if (path == "/trace") {
    return {.content_type = "application/json", .body = server_->trace().ToChromeJson()};
  }
  if (path == "/") return {.content_type = "text/html; charset=utf-8", .body = Page()};
  return {.status = 404, .body = "try /, /status, /metrics, /healthz, /readyz or /trace\n"};
}

HttpResponse AdminPages::Liveness() const {
  // A STEP of the slowest backend and every bounded wait are shorter.
  constexpr int64_t kStuckMs = 10'000;
  const int64_t age_ms = server_->loop_age_ms();
  const bool is_alive = age_ms < kStuckMs;
  return {.status = is_alive ? 200 : 503,
          .body = absl::StrCat(is_alive ? "ok" : "stuck", ": the STEP loop moved ", age_ms,
                               " ms ago\n")};
}

HttpResponse AdminPages::Readiness() const {
  const std::string obstacle = server_->NotReadyReason();
  return {.status = obstacle.empty() ? 200 : 503,
          .body = obstacle.empty() ? "ready\n" : "not ready: " + obstacle + "\n"};
}

std::string AdminPages::StatusJson() const {
  const contract::HealthReply health = server_->health();
  const Counts counts = server_->counts();
  const BuildInfo build = GetBuildInfo();
  Json json = {
      {"schema", "dspark-status/1"},
      {"tool", {{"version", build.version}, {"git", build.git_id}}},
      {"state", contract::WorkerStateName(health.state)},
      {"ready", server_->NotReadyReason().empty()},
      {"model", facts_.model_dir},
      {"backend", facts_.backend},
      {"mode", facts_.mode},
      {"listen", facts_.listen},
      {"rdma", facts_.has_rdma},
      {"clients_prove_secret", facts_.has_secret},
      {"identity", Hex(health.identity)},
      {"tp", health.tp},
      {"uptime_s", static_cast<double>(health.uptime_us) / 1e6},
      {"sessions", health.sessions},
      {"steps", health.steps},
      {"failed_steps", health.failed_steps},
      {"failures_in_a_row", health.failures_in_a_row},
      {"inserts", health.inserts},
      {"resets", health.resets},
      {"canaries", counts.canaries},
      {"last_good_step_age_ms", health.last_good_step_age_us / 1000},
      {"step_us",
       {{"p50", health.step_us_p50}, {"p99", health.step_us_p99}, {"max", health.step_us_max}}},
      {"slots", Json::array()},
      {"errors", Json::array()}};
  for (const contract::SlotInfo& slot : counts.slots) {
    json["slots"].push_back({{"slot", slot.slot},
                             {"state", contract::SlotStateName(slot.state)},
                             {"length", slot.length},
                             {"window_rows", slot.window_rows}});
  }
  for (const PastError& error : counts.errors) {
    json["errors"].push_back({{"wall_ms", error.wall_ms}, {"text", error.text}});
  }
  json["telemetry"] = cards_ == nullptr ? Json(nullptr) : CardStatusJson(cards_->Now());
  return json.dump(1) + "\n";
}

std::string AdminPages::Page() const {
  const contract::HealthReply health = server_->health();
  const Counts counts = server_->counts();
  const BuildInfo build = GetBuildInfo();
  const std::string obstacle = server_->NotReadyReason();
  std::string html = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>dspark-serve: ",
      contract::WorkerStateName(health.state), "</title><style>", kStyle,
      "</style></head><body>\n<h1>dspark-serve: ", contract::WorkerStateName(health.state),
      "</h1>\n<table>\n");
  absl::StrAppend(
      &html, Row("ready", obstacle.empty() ? "yes" : "no: " + obstacle),
      Row("model", facts_.model_dir), Row("backend", facts_.backend + ", " + facts_.mode),
      Row("listens on", facts_.listen + (facts_.has_rdma ? ", TCP and RDMA" : ", TCP") +
                            (facts_.has_secret ? ", clients prove the secret" : "")),
      Row("identity", Hex(health.identity)),
      Row("version", absl::StrCat(build.version, " (", build.git_id, ")")),
      Row("uptime", absl::StrFormat("%.0f s", static_cast<double>(health.uptime_us) / 1e6)),
      Row("sessions", absl::StrCat(health.sessions)),
      Row("STEPs", absl::StrCat(health.steps, ", failed ", health.failed_steps, ", in a row ",
                                health.failures_in_a_row)),
      Row("last good STEP", absl::StrCat(health.last_good_step_age_us / 1000, " ms ago")),
      Row("STEP p50, p99, max", absl::StrCat(Ms(health.step_us_p50), ", ", Ms(health.step_us_p99),
                                             ", ", Ms(health.step_us_max))));
  absl::StrAppend(&html,
                  "</table>\n<h2>Slots</h2>\n<table id=\"slots\">\n<tr><th>slot</th><th>state</th>"
                  "<th>length</th><th>window</th></tr>\n",
                  SlotRows(counts.slots),
                  "</table>\n<h2>Engine time of the last STEPs</h2>\n<table id=\"latency\">\n",
                  HistogramRows(server_->SortedStepTimes()), "</table>\n",
                  cards_ == nullptr ? "" : CardTable(cards_->Now()),
                  "<h2>Last errors</h2>\n<table id=\"errors\">\n", ErrorRows(counts),
                  "</table>\n<p><a href=\"/status\">/status</a> <a href=\"/metrics\">/metrics</a> "
                  "<a href=\"/healthz\">/healthz</a> <a href=\"/readyz\">/readyz</a> "
                  "<a href=\"/trace\">/trace</a></p>\n</body></html>\n");
  return html;
}

}  // namespace tp2::server
