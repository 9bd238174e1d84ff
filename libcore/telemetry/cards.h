// Which cards a machine has, and which of them somebody means by UUID.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/base/json.h"

namespace tp2::telemetry {

struct CardInfo {
  unsigned index = 0;     // NVML's order, which is not CUDA's
  std::string uuid = {};  // "GPU-" and 32 hex digits in five groups
  std::string name = {};  // empty when the driver does not say
  std::string pci = {};   // "00000000:41:00.0"
};

Json ToJson(const CardInfo& card);
// Errors: kDataLoss when a field is missing or of another type.
absl::StatusOr<CardInfo> CardFromJson(const Json& json);

// Whether `text` is a whole card UUID: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx.
bool IsFullUuid(std::string_view text);

// The card of every wanted UUID, in the wanted order, which is rank order. A wanted text is a whole
// UUID or its first 8 or more hex digits, with or without "GPU-"; case does not matter.
// Errors: kUnavailable when a text names no card or several (the candidates are listed), when it is
// too short or a MIG instance, or when two texts name one card.
absl::StatusOr<std::vector<CardInfo>> MatchCards(std::span<const std::string> wanted,
                                                 std::span<const CardInfo> present);

// Refuses cards whose PCI address is not the expected one of their rank; "41:00.0" and
// "0000:41:00.0" both match "00000000:41:00.0". Errors: kUnavailable.
absl::Status CheckPci(std::span<const CardInfo> cards, std::span<const std::string> expected);

}  // namespace tp2::telemetry
