#include "libcore/telemetry/sample.h"

#include <time.h>

#include <array>
#include <limits>

#include "absl/strings/str_format.h"
#include "libcore/base/status_macros.h"

namespace tp2::telemetry {
namespace {

// One table for both directions: a number of a card and its key.
struct NumberField {
  const char* key;
  std::optional<uint64_t> CardSample::*member;
};
constexpr NumberField kNumbers[] = {
    {"power_mw", &CardSample::power_mw},
    {"power_average_mw", &CardSample::power_average_mw},
    {"power_limit_mw", &CardSample::power_limit_mw},
    {"energy_mj", &CardSample::energy_mj},
    {"sm_clock_mhz", &CardSample::sm_clock_mhz},
    {"memory_clock_mhz", &CardSample::memory_clock_mhz},
    {"temperature_c", &CardSample::temperature_c},
    {"memory_temperature_c", &CardSample::memory_temperature_c},
    {"pstate", &CardSample::pstate},
    {"clock_reasons", &CardSample::clock_reasons},
    {"gpu_utilization_pct", &CardSample::gpu_utilization_pct},
    {"memory_utilization_pct", &CardSample::memory_utilization_pct},
    {"memory_used_bytes", &CardSample::memory_used_bytes},
    {"memory_total_bytes", &CardSample::memory_total_bytes},
};

struct LinkField {
  const char* key;
  std::optional<uint64_t> LinkSample::*member;
};
constexpr LinkField kLinkCounters[] = {
    {"replay", &LinkSample::replay},
    {"recovery", &LinkSample::recovery},
    {"crc_flit", &LinkSample::crc_flit},
    {"crc_data", &LinkSample::crc_data},
};

Json OrNull(const std::optional<uint64_t>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

std::optional<uint64_t> Number(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

absl::Status Malformed(const char* what) {
  return absl::DataLossError(absl::StrFormat("telemetry line: expected %s", what));
}

Json ToJson(const CardSample& card) {
  Json json = {{"uuid", card.uuid}};
  json["error"] = card.error.has_value() ? Json(*card.error) : Json(nullptr);
  for (const NumberField& field : kNumbers) json[field.key] = OrNull(card.*field.member);
  json["processes"] = nullptr;
  if (card.processes.has_value()) {
    json["processes"] = Json::array();
    for (const ProcessSample& process : *card.processes) {
      json["processes"].push_back(
          {{"pid", process.pid}, {"used_bytes", OrNull(process.used_bytes)}});
    }
  }
  json["links"] = Json::array();
  for (const LinkSample& link : card.links) {
    Json entry = {{"link", link.link}, {"is_active", link.is_active}};
    for (const LinkField& field : kLinkCounters) entry[field.key] = OrNull(link.*field.member);
    json["links"].push_back(entry);
  }
  json["link_totals"] = nullptr;
  if (card.link_totals.has_value()) {
    json["link_totals"] = Json::object();
    for (const LinkField& field : kLinkCounters) {
      json["link_totals"][field.key] = OrNull((*card.link_totals).*field.member);
    }
  }
  return json;
}

absl::StatusOr<CardSample> CardSampleFromJson(const Json& json) {
  if (!json.is_object() || !json.contains("uuid") || !json["uuid"].is_string()) {
    return Malformed("a card with a uuid");
  }
  CardSample card{.uuid = json["uuid"].get<std::string>()};
  if (json.contains("error") && json["error"].is_string()) {
    card.error = json["error"].get<std::string>();
  }
  for (const NumberField& field : kNumbers) card.*field.member = Number(json, field.key);
  if (json.contains("processes") && json["processes"].is_array()) {
    card.processes.emplace();
    for (const Json& entry : json["processes"]) {
      const std::optional<uint64_t> pid = entry.is_object() ? Number(entry, "pid") : std::nullopt;
      if (!pid.has_value()) return Malformed("a process with a pid");
      card.processes->push_back(
          {.pid = static_cast<unsigned>(*pid), .used_bytes = Number(entry, "used_bytes")});
    }
  }
  if (!json.contains("links") || !json["links"].is_array()) return Malformed("a list of links");
  for (const Json& entry : json["links"]) {
    const std::optional<uint64_t> number = entry.is_object() ? Number(entry, "link") : std::nullopt;
    if (!number.has_value()) return Malformed("a link with a number");
    LinkSample link{.link = static_cast<unsigned>(*number)};
    link.is_active = entry.value("is_active", Json(false)) == Json(true);
    for (const LinkField& field : kLinkCounters) link.*field.member = Number(entry, field.key);
    card.links.push_back(link);
  }
  if (json.contains("link_totals") && json["link_totals"].is_object()) {
    card.link_totals.emplace();
    for (const LinkField& field : kLinkCounters) {
      (*card.link_totals).*field.member = Number(json["link_totals"], field.key);
    }
  }
  return card;
}

}  // namespace

Json ToJson(const Sample& sample) {
  Json json = {{"schema", "tp2-telemetry/1"},
               {"boot_ns", sample.boot_ns},
               {"wall_utc", sample.wall_utc},
               {"cards", Json::array()}};
  for (size_t rank = 0; rank < sample.cards.size(); ++rank) {
    Json card = ToJson(sample.cards[rank]);
    card["rank"] = rank;
    json["cards"].push_back(std::move(card));
  }
  return json;
}

absl::StatusOr<Sample> SampleFromJson(const Json& json) {
  if (!json.is_object() || !json.contains("cards") || !json["cards"].is_array() ||
      !json.contains("boot_ns") || !json["boot_ns"].is_number_integer() ||
      !json.contains("wall_utc") || !json["wall_utc"].is_string()) {
    return Malformed("boot_ns, wall_utc and cards");
  }
  Sample sample{.boot_ns = json["boot_ns"].get<int64_t>(),
                .wall_utc = json["wall_utc"].get<std::string>()};
  for (const Json& entry : json["cards"]) {
    TP2_ASSIGN_OR_RETURN(CardSample card, CardSampleFromJson(entry));
    sample.cards.push_back(std::move(card));
  }
  return sample;
}

std::string UtcNow() {
  struct timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  struct tm parts = {};
  ::gmtime_r(&now.tv_sec, &parts);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900,
                         parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                         now.tv_nsec / 1'000'000);
}

int64_t BootNowNs() {
  struct timespec now = {};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace tp2::telemetry
