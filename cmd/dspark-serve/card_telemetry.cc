#include "cmd/dspark-serve/card_telemetry.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/base/status_macros.h"
#include "libcore/telemetry/cards.h"
#include "libcore/telemetry/nvml.h"

namespace tp2::serve {
namespace {

constexpr char kOff[] = "off";
constexpr int kFirstAnswerMs = 5000;
constexpr int kPeriodMs = 1000;
constexpr int kStaleMs = 5000;

// An engine names its cards "NAME UUID".
std::vector<std::string> UuidsOf(const EngineInfo& engine) {
  std::vector<std::string> uuids;
  for (const std::string& name : engine.device_names) {
    const std::string uuid = name.substr(name.rfind(' ') + 1);
    if (telemetry::IsFullUuid(uuid)) uuids.push_back(uuid);
  }
  return uuids;
}

}  // namespace

CardTelemetry::CardTelemetry(const config::WorkerConfig& config) : gpus_(config.gpus) {
  if (config.nvml_library == kOff || (config.backend == "cpu" && gpus_.empty())) return;
  helper_.emplace(telemetry::HelperProcess::Start(
      config.nvml_library.empty() ? telemetry::kDefaultNvmlLibrary : config.nvml_library));
}

absl::StatusOr<std::unique_ptr<telemetry::CardWatch>> CardTelemetry::Watch(
    const EngineInfo& engine) {
  const std::vector<std::string> wanted = gpus_.empty() ? UuidsOf(engine) : gpus_;
  if (!helper_.has_value() || wanted.empty()) {
    helper_.reset();
    return nullptr;
  }
  TP2_RETURN_IF_ERROR(helper_->status());
  telemetry::HelperProcess helper = *std::move(*helper_);
  helper_.reset();
  TP2_ASSIGN_OR_RETURN(const std::vector<telemetry::CardInfo> present,
                       helper.ReadCards(kFirstAnswerMs));
  TP2_ASSIGN_OR_RETURN(std::vector<telemetry::CardInfo> cards,
                       telemetry::MatchCards(wanted, present));
  return telemetry::CardWatch::Start(std::move(helper), std::move(cards), kPeriodMs, kStaleMs);
}

std::string Describe(const telemetry::WatchedCards& cards) {
  std::string text;
  for (size_t rank = 0; rank < cards.cards.size(); ++rank) {
    absl::StrAppend(&text, "rank ", rank, " ", cards.cards[rank].name, " ", cards.cards[rank].uuid,
                    ", ");
  }
  return absl::StrCat(text, "driver ", cards.driver);
}

}  // namespace tp2::serve
