#include "libcore/telemetry/sampler.h"

#include <algorithm>
#include <limits>

namespace tp2::telemetry {
namespace {

constexpr unsigned kMaxProcesses = 256;

// The value of a call with one unsigned result, or absent.
template <typename Function, typename... Arguments>
std::optional<uint64_t> Number(Function function, Arguments... arguments) {
  unsigned value = 0;
  if (function == nullptr || function(arguments..., &value) != kNvmlSuccess) return std::nullopt;
  return value;
}

std::optional<uint64_t> FieldNumber(const NvmlFieldValue& field) {
  if (field.result != kNvmlSuccess) return std::nullopt;
  switch (field.value_type) {
    case kNvmlUint:
      return field.value.as_uint;
    case kNvmlUlong:
    case kNvmlUlonglong:
      return field.value.as_u64;
    default:
      return std::nullopt;
  }
}

void ReadFields(const NvmlFunctions& nvml, NvmlDevice device, CardSample& card) {
  if (nvml.field_values == nullptr) return;
  NvmlFieldValue fields[4] = {};
  fields[0].field = kNvmlFieldPowerInstant;
  fields[1].field = kNvmlFieldPowerAverage;
  fields[2].field = kNvmlFieldMemoryTemperature;
  fields[3].field = kNvmlFieldEnergy;
  for (NvmlFieldValue& field : fields) field.result = kNvmlFunctionNotFound;
  if (nvml.field_values(device, 4, fields) != kNvmlSuccess) return;
  card.power_mw = FieldNumber(fields[0]);
  card.power_average_mw = FieldNumber(fields[1]);
  card.memory_temperature_c = FieldNumber(fields[2]);
  card.energy_mj = FieldNumber(fields[3]);
}

void ReadReasons(const NvmlFunctions& nvml, NvmlDevice device, CardSample& card) {
  // The second name is the older one of the same call.
  for (const auto function : {nvml.event_reasons, nvml.throttle_reasons}) {
    unsigned long long reasons = 0;
    if (function != nullptr && function(device, &reasons) == kNvmlSuccess) {
      card.clock_reasons = reasons;
      return;
    }
  }
}

void ReadProcesses(const NvmlFunctions& nvml, NvmlDevice device, CardSample& card) {
  NvmlProcess processes[kMaxProcesses] = {};
  unsigned count = kMaxProcesses;
  if (nvml.processes == nullptr) return;
  const NvmlReturn code = nvml.processes(device, &count, processes);
  if (code != kNvmlSuccess && code != kNvmlInsufficientSize) return;
  card.processes.emplace();
  // More than fit: somebody is there, which is all that matters.
  if (code == kNvmlInsufficientSize) card.processes->push_back({.pid = 0});
  for (unsigned i = 0; code == kNvmlSuccess && i < std::min(count, kMaxProcesses); ++i) {
    const uint64_t used = processes[i].used_bytes;
    card.processes->push_back({.pid = processes[i].pid,
                               .used_bytes = used == std::numeric_limits<uint64_t>::max()
                                                 ? std::nullopt
                                                 : std::optional(used)});
  }
}

void ReadLinks(const NvmlFunctions& nvml, NvmlDevice device, CardSample& card) {
  for (unsigned number = 0; number < kNvmlMaxLinks; ++number) {
    unsigned is_active = 0;
    if (nvml.link_state == nullptr || nvml.link_state(device, number, &is_active) != kNvmlSuccess) {
      return;  // links are numbered without gaps
    }
    const auto counter = [&](unsigned which) -> std::optional<uint64_t> {
      unsigned long long value = 0;
      if (nvml.link_errors == nullptr ||
          nvml.link_errors(device, number, which, &value) != kNvmlSuccess) {
        return std::nullopt;
      }
      return value;
    };
    card.links.push_back({.link = number,
                          .is_active = is_active == 1,
                          .replay = counter(kNvmlLinkReplay),
                          .recovery = counter(kNvmlLinkRecovery),
                          .crc_flit = counter(kNvmlLinkCrcFlit),
                          .crc_data = counter(kNvmlLinkCrcData)});
  }
}

void ReadLinkTotals(const NvmlFunctions& nvml, NvmlDevice device, CardSample& card) {
  if (nvml.field_values == nullptr || card.links.empty()) return;
  NvmlFieldValue fields[4] = {};
  fields[0].field = kNvmlFieldReplayTotal;
  fields[1].field = kNvmlFieldRecoveryTotal;
  fields[2].field = kNvmlFieldCrcFlitTotal;
  fields[3].field = kNvmlFieldCrcDataTotal;
  for (NvmlFieldValue& field : fields) field.result = kNvmlFunctionNotFound;
  if (nvml.field_values(device, 4, fields) != kNvmlSuccess) return;
  card.link_totals = LinkSample{.replay = FieldNumber(fields[0]),
                                .recovery = FieldNumber(fields[1]),
                                .crc_flit = FieldNumber(fields[2]),
                                .crc_data = FieldNumber(fields[3])};
}

}  // namespace

Sampler::Sampler(const Nvml* nvml, std::span<const CardInfo> cards)
    : nvml_(nvml), cards_(cards.begin(), cards.end()) {}

Sample Sampler::Read() const {
  Sample sample{.boot_ns = BootNowNs(), .wall_utc = UtcNow()};
  for (const CardInfo& card : cards_) sample.cards.push_back(ReadCard(card));
  return sample;
}

CardSample Sampler::ReadCard(const CardInfo& info) const {
  const NvmlFunctions& nvml = nvml_->functions();
  CardSample card{.uuid = info.uuid};
  const absl::StatusOr<NvmlDevice> found = nvml_->Device(info);
  if (!found.ok()) {
    card.error = std::string(found.status().message());
    return card;
  }
  const NvmlDevice device = *found;
  char uuid[96] = {};
  const NvmlReturn code = nvml.uuid(device, uuid, sizeof uuid - 1);
  if (code != kNvmlSuccess) {
    card.error = NvmlMeaning(code);
    return card;
  }
  // Indices can shift when a card falls off the bus: never report one card under another's name.
  if (info.uuid != uuid) {
    card.error = "the card is lost: another one has its index";
    return card;
  }
  ReadFields(nvml, device, card);
  const std::optional<uint64_t> usage = Number(nvml.power_usage, device);
  if (!card.power_mw.has_value()) card.power_mw = usage;
  if (!card.power_average_mw.has_value()) card.power_average_mw = usage;
  card.power_limit_mw = Number(nvml.power_limit, device);
  card.sm_clock_mhz = Number(nvml.clock_info, device, kNvmlClockSm);
  card.memory_clock_mhz = Number(nvml.clock_info, device, kNvmlClockMemory);
  card.temperature_c = Number(nvml.temperature, device, kNvmlTemperatureCore);
  int pstate = 0;
  // 32 means unknown.
  if (nvml.performance_state != nullptr &&
      nvml.performance_state(device, &pstate) == kNvmlSuccess && pstate >= 0 && pstate < 32) {
    card.pstate = static_cast<uint64_t>(pstate);
  }
  ReadReasons(nvml, device, card);
  NvmlUtilization utilization = {};
  if (nvml.utilization != nullptr && nvml.utilization(device, &utilization) == kNvmlSuccess) {
    card.gpu_utilization_pct = utilization.gpu;
    card.memory_utilization_pct = utilization.memory;
  }
  NvmlMemory memory = {};
  if (nvml.memory != nullptr && nvml.memory(device, &memory) == kNvmlSuccess) {
    card.memory_used_bytes = memory.used;
    card.memory_total_bytes = memory.total;
  }
  ReadProcesses(nvml, device, card);
  ReadLinks(nvml, device, card);
  ReadLinkTotals(nvml, device, card);
  return card;
}

}  // namespace tp2::telemetry
