#include "libcore/bench/conditions.h"

#include <stdlib.h>
#include <sys/utsname.h>

#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/telemetry/sampler.h"

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

Conditions::Conditions(const std::optional<CardFacts>& card, const std::string& nvml_library)
    : card_(card), started_utc_(telemetry::UtcNow()), load_start_(LoadPerMinute()) {
  if (!card.has_value()) return;
  absl::StatusOr<std::unique_ptr<telemetry::Nvml>> nvml = telemetry::Nvml::Open(nvml_library);
  absl::Status status = nvml.status();
  if (nvml.ok()) {
    nvml_ = *std::move(nvml);
    const auto present = nvml_->Cards();
    status = present.status();
    if (present.ok()) {
      const std::string wanted[] = {card->uuid};
      const auto found = telemetry::MatchCards(wanted, *present);
      status = found.status();
      if (found.ok()) nvml_card_ = found->front();
    }
  }
  if (!status.ok()) nvml_error_ = std::string(status.message());
  if (nvml_card_.has_value()) start_ = telemetry::Sampler(nvml_.get(), {{*nvml_card_}}).Read();
}

std::optional<telemetry::CardSample> Conditions::Read() const {
  if (!nvml_card_.has_value()) return std::nullopt;
  return telemetry::Sampler(nvml_.get(), {{*nvml_card_}}).Read().cards.front();
}

Json Conditions::Finish() {
  Json json = {{"host",
                {{"kernel", KernelRelease()},
                 {"cpu", CpuModel()},
                 {"cpu_threads", std::thread::hardware_concurrency()},
                 {"load_1min_start", load_start_},
                 {"load_1min_end", LoadPerMinute()}}},
               {"started_utc", started_utc_},
               {"ended_utc", telemetry::UtcNow()},
               {"card", card_.has_value() ? ToJson(*card_) : Json(nullptr)},
               {"nvml", nullptr},
               {"nvml_error", nvml_error_.empty() ? Json(nullptr) : Json(nvml_error_)}};
  if (nvml_card_.has_value()) {
    const telemetry::Sample end = telemetry::Sampler(nvml_.get(), {{*nvml_card_}}).Read();
    json["nvml"] = {{"driver", nvml_->DriverVersion()},
                    {"start", telemetry::ToJson(*start_)},
                    {"end", telemetry::ToJson(end)}};
  }
  return json;
}

std::string Conditions::Line() const {
  const std::string load = absl::StrFormat("load %.2f", LoadPerMinute());
  const std::optional<telemetry::CardSample> now = Read();
  if (!now.has_value()) return nvml_error_.empty() ? load : absl::StrCat(load, "; ", nvml_error_);
  const auto number = [](const std::optional<uint64_t>& value, uint64_t divisor) {
    return value.has_value() ? absl::StrCat(*value / divisor) : std::string("?");
  };
  return absl::StrCat(load, "; ", number(now->temperature_c, 1), " C, ",
                      number(now->power_mw, 1000), " W of ", number(now->power_limit_mw, 1000),
                      " W, SM ", number(now->sm_clock_mhz, 1), " MHz, memory ",
                      number(now->memory_clock_mhz, 1), " MHz, reasons ",
                      now->clock_reasons.has_value() ? ClockReasonNames(*now->clock_reasons) : "?");
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
