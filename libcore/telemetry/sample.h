// One reading of one card, and its JSON form (schema tp2-telemetry/1: one line per reading of all
// cards). Absent values are null: a card without a counter and a counter at 0 are different things.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/base/json.h"

namespace tp2::telemetry {

// Bits of clock_reasons.
struct ClockReason {
  uint64_t bit;
  const char* name;
};
inline constexpr ClockReason kClockReasons[] = {
    {0x1, "idle"},        {0x2, "app_clocks"},   {0x4, "sw_power_cap"},
    {0x8, "hw_slowdown"}, {0x10, "sync_boost"},  {0x20, "sw_thermal"},
    {0x40, "hw_thermal"}, {0x80, "power_brake"}, {0x100, "display_clocks"},
};

struct LinkSample {
  unsigned link = 0;
  bool is_active = false;
  // Since the driver was loaded; of one link, or of all links of a card together.
  std::optional<uint64_t> replay = {};
  std::optional<uint64_t> recovery = {};
  std::optional<uint64_t> crc_flit = {};
  std::optional<uint64_t> crc_data = {};
};

struct ProcessSample {
  unsigned pid = 0;
  std::optional<uint64_t> used_bytes = {};
};

struct CardSample {
  std::string uuid = {};
  std::optional<std::string> error = {};  // why the card does not answer; the rest is absent then
  std::optional<uint64_t> power_mw = {};  // now
  std::optional<uint64_t> power_average_mw = {};  // over about one second on most cards
  std::optional<uint64_t> power_limit_mw = {};
  std::optional<uint64_t> energy_mj = {};  // since the driver was loaded
  std::optional<uint64_t> sm_clock_mhz = {};
  std::optional<uint64_t> memory_clock_mhz = {};
  std::optional<uint64_t> temperature_c = {};
  std::optional<uint64_t> memory_temperature_c = {};
  std::optional<uint64_t> pstate = {};
  std::optional<uint64_t> clock_reasons = {};
  std::optional<uint64_t> gpu_utilization_pct = {};
  std::optional<uint64_t> memory_utilization_pct = {};
  std::optional<uint64_t> memory_used_bytes = {};
  std::optional<uint64_t> memory_total_bytes = {};
  std::optional<std::vector<ProcessSample>> processes = {};
  std::vector<LinkSample> links = {};
  // The driver's own sums; they can stay at 0 while a link counts.
  std::optional<LinkSample> link_totals = {};
};

// All cards of a run, rank by rank.
struct Sample {
  int64_t boot_ns = 0;        // CLOCK_BOOTTIME
  std::string wall_utc = {};  // label only
  std::vector<CardSample> cards = {};
};

Json ToJson(const Sample& sample);
// Errors: kDataLoss.
absl::StatusOr<Sample> SampleFromJson(const Json& json);

// "2026-11-20T10:32:07.123Z" of the wall clock.
std::string UtcNow();
// CLOCK_BOOTTIME: counts suspended time and never jumps.
int64_t BootNowNs();

}  // namespace tp2::telemetry
