#include "libcore/bench/conditions.h"

#include <stdlib.h>
#include <sys/utsname.h>

#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/status_macros.h"
#include "libcore/telemetry/sampler.h"
#include "libcore/telemetry/totals.h"

namespace tp2::bench {
namespace {

// Running processes over the last minute, as the kernel counts them.
double LoadPerMinute() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load : 0;
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string KernelRelease() {
  struct utsname names = {};
  return ::uname(&names) == 0 ? names.release : "unknown";
}

}  // namespace

std::string ClockReasonNames(uint64_t reasons) {
  std::string names;
  for (const telemetry::ClockReason& reason : telemetry::kClockReasons) {
    if ((reasons & reason.bit) == 0) continue;
    absl::StrAppend(&names, names.empty() ? "" : ",", reason.name);
  }
  return names.empty() ? "none" : names;
}

Conditions::Conditions(std::vector<CardFacts> cards, const std::string& nvml_library)
    : cards_(std::move(cards)), started_utc_(telemetry::UtcNow()), load_start_(LoadPerMinute()) {
  if (cards_.empty()) return;
  absl::StatusOr<std::unique_ptr<telemetry::Nvml>> nvml = telemetry::Nvml::Open(nvml_library);
  absl::Status status = nvml.status();
  if (nvml.ok()) {
    nvml_ = *std::move(nvml);
    const auto present = nvml_->Cards();
    status = present.status();
    if (present.ok()) status = FindCards(*present);
  }
  if (!status.ok()) nvml_error_ = std::string(status.message());
  if (!nvml_cards_.empty()) start_ = ReadAll();
}

// One by one: two ranks may share a card, which the matching of a whole list refuses.
absl::Status Conditions::FindCards(const std::vector<telemetry::CardInfo>& present) {
  std::vector<telemetry::CardInfo> found;
  for (const CardFacts& card : cards_) {
    const std::string wanted[] = {card.uuid};
    TP2_ASSIGN_OR_RETURN(const std::vector<telemetry::CardInfo> match,
                         telemetry::MatchCards(wanted, present));
    found.push_back(match.front());
  }
  nvml_cards_ = std::move(found);
  return absl::OkStatus();
}

telemetry::Sample Conditions::ReadAll() const {
  return telemetry::Sampler(nvml_.get(), nvml_cards_).Read();
}

std::optional<telemetry::CardSample> Conditions::Read() const {
  if (nvml_cards_.empty()) return std::nullopt;
  return ReadAll().cards.front();
}

std::vector<uint64_t> Conditions::MemoryUsedBytes() const {
  std::vector<uint64_t> used;
  if (nvml_cards_.empty()) return used;
  for (const telemetry::CardSample& card : ReadAll().cards) {
    used.push_back(card.memory_used_bytes.value_or(0));
  }
  return used;
}

Json Conditions::Finish() {
  Json cards = Json::array();
  for (const CardFacts& card : cards_) cards.push_back(ToJson(card));
  Json json = {{"host",
                {{"kernel", KernelRelease()},
                 {"cpu", CpuModel()},
                 {"cpu_threads", std::thread::hardware_concurrency()},
                 {"load_1min_start", load_start_},
                 {"load_1min_end", LoadPerMinute()}}},
               {"started_utc", started_utc_},
               {"ended_utc", telemetry::UtcNow()},
               {"card", cards.empty() ? Json(nullptr) : cards.front()},
               {"cards", cards},
               {"nvml", nullptr},
               {"nvml_error", nvml_error_.empty() ? Json(nullptr) : Json(nvml_error_)}};
  if (nvml_cards_.empty()) return json;
  const telemetry::Sample end = ReadAll();
  telemetry::RunTotals totals;
  totals.Add(*start_);
  totals.Add(end);
  Json link_errors = Json::array();
  for (const telemetry::CardTotals& card : totals.cards()) {
    const std::optional<uint64_t> errors = card.LinkErrors();
    link_errors.push_back(errors.has_value() ? Json(*errors) : Json(nullptr));
  }
  json["nvml"] = {{"driver", nvml_->DriverVersion()},
                  {"start", telemetry::ToJson(*start_)},
                  {"end", telemetry::ToJson(end)},
                  {"link_errors", link_errors}};
  return json;
}

std::string Conditions::Line() const {
  std::string line = absl::StrFormat("load %.2f", LoadPerMinute());
  if (!nvml_error_.empty()) absl::StrAppend(&line, "; ", nvml_error_);
  if (nvml_cards_.empty()) return line;
  const auto number = [](const std::optional<uint64_t>& value, uint64_t divisor) {
    return value.has_value() ? absl::StrCat(*value / divisor) : std::string("?");
  };
  for (const telemetry::CardSample& now : ReadAll().cards) {
    absl::StrAppend(&line, "; ", number(now.temperature_c, 1), " C, ", number(now.power_mw, 1000),
                    " W of ", number(now.power_limit_mw, 1000), " W, SM ",
                    number(now.sm_clock_mhz, 1), " MHz, memory ", number(now.memory_clock_mhz, 1),
                    " MHz, reasons ",
                    now.clock_reasons.has_value() ? ClockReasonNames(*now.clock_reasons) : "?");
  }
  return line;
}

Json ToJson(const CardFacts& card) {
  return {{"name", card.name},
          {"uuid", card.uuid},
          {"sm", card.capability},
          {"multiprocessors", card.multiprocessors},
          {"memory_bytes", card.memory_bytes},
          {"l2_bytes", card.l2_bytes},
          {"cuda_runtime", card.runtime_version}};
}

}  // namespace tp2::bench
