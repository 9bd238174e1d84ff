// Under which conditions times were measured: machine, load, card, driver, clocks, power,
// temperature and throttle reasons. Every result carries them; what cannot be read is null with the
// reason, never left out.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "libcore/base/json.h"
#include "libcore/bench/device_probe.h"
#include "libcore/telemetry/nvml.h"
#include "libcore/telemetry/sample.h"

namespace tp2::bench {

// Reasons that make a time worthless: the card slowed down for heat, power supply or hardware. The
// software power cap is a condition of the machine and stays visible in the samples.
inline constexpr uint64_t kThrottleReasons = 0x8 | 0x20 | 0x40 | 0x80;

// Names of the bits of clock_reasons, with commas; "none" for 0.
std::string ClockReasonNames(uint64_t reasons);

// Thread-compatible. Reads NVML in this process, between measurements only.
class Conditions {
 public:
  // Takes the first reading. `cards` by rank; none for the CPU. `nvml_library` is opened for cards
  // only.
  Conditions(std::vector<CardFacts> cards, const std::string& nvml_library);

  // Rank 0's card now; nothing without a card or without NVML.
  std::optional<telemetry::CardSample> Read() const;
  // What every rank's card has in use now, by whomever; empty without cards or without NVML.
  std::vector<uint64_t> MemoryUsedBytes() const;

  // Takes the last reading and gives everything: {"host": {...}, "card": rank 0's {...} or null,
  // "cards": [...], "nvml": {"driver", "start", "end", "link_errors": counted since the first
  // reading, by rank} or null, "nvml_error"}.
  Json Finish();

  // One header line for people: "36 C, 80 W of 700 W, SM 345 MHz, memory 3201 MHz, reasons idle",
  // for every card.
  std::string Line() const;

 private:
  absl::Status FindCards(const std::vector<telemetry::CardInfo>& present);
  telemetry::Sample ReadAll() const;

  std::vector<CardFacts> cards_;
  std::unique_ptr<telemetry::Nvml> nvml_;
  std::vector<telemetry::CardInfo> nvml_cards_;  // by rank; none without NVML
  std::string nvml_error_;
  std::string started_utc_;
  double load_start_ = 0;
  std::optional<telemetry::Sample> start_;
};

// {"name", "uuid", "sm", ...}.
Json ToJson(const CardFacts& card);

}  // namespace tp2::bench
