// A libnvidia-ml of our own for tests. Every call reads the script beside the library,
// `<library>.script`, so that a test can change what the cards say while a run goes on. Lines are
// `key = value`; `#` begins a comment. Values may be lists over time, separated by commas: one step
// per reading of that key, the last one stays.
//
//   init.code, init.hang_ms       of nvmlInit_v2
//   cards                         how many
//   cardN.uuid .name .pci
//   cardN.code                    what every call about the card returns
//   cardN.hang_ms                 sleeps in every call about the card
//   cardN.power_mw .power_average_mw .limit_mw .sm_mhz .memory_mhz .temperature .pstate .reasons
//     .used .total .energy_mj
//   cardN.processes               pids, separated by spaces
//   cardN.links                   how many; cardN.linkM.replay .recovery .crc_flit .crc_data, and
//     the field values of all links together, cardN.total.replay and so on
//
// A number that the script does not give is "not supported". TP2_FAKE_OLD builds a library without
// the newer symbols, TP2_FAKE_BROKEN one without a symbol that nothing works without.
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "libcore/telemetry/nvml_abi.h"

namespace {

using tp2::telemetry::NvmlDevice;
using tp2::telemetry::NvmlFieldValue;
using tp2::telemetry::NvmlMemory;
using tp2::telemetry::NvmlPciInfo;
using tp2::telemetry::NvmlProcess;
using tp2::telemetry::NvmlReturn;
using tp2::telemetry::NvmlUtilization;

constexpr NvmlReturn kInvalidArgument = 2;
constexpr NvmlReturn kNotSupported = 3;

std::string ScriptPath() {
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<void*>(&ScriptPath), &info) == 0) return "";
  return std::string(info.dli_fname) + ".script";
}

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  const size_t end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::optional<std::string> Value(const std::string& key) {
  static std::map<std::string, size_t> readings;
  std::ifstream script(ScriptPath());
  for (std::string line; std::getline(script, line);) {
    line = line.substr(0, line.find('#'));
    const size_t equal = line.find('=');
    if (equal == std::string::npos || Trimmed(line.substr(0, equal)) != key) continue;
    std::string value = Trimmed(line.substr(equal + 1));
    for (size_t step = readings[key]++; step > 0; --step) {
      const size_t comma = value.find(',');
      if (comma == std::string::npos) break;
      value = value.substr(comma + 1);
    }
    return Trimmed(value.substr(0, value.find(',')));
  }
  return std::nullopt;
}

std::optional<unsigned long long> Number(const std::string& key) {
  const std::optional<std::string> value = Value(key);
  if (!value.has_value()) return std::nullopt;
  return std::strtoull(value->c_str(), nullptr, 0);
}

void Sleep(unsigned long long ms) {
  struct timespec left = {.tv_sec = static_cast<time_t>(ms / 1000),
                          .tv_nsec = static_cast<long>(ms % 1000) * 1'000'000};
  while (ms > 0 && ::nanosleep(&left, &left) != 0) {
  }
}

std::string Card(NvmlDevice device) {
  // Handles are the index plus one.
  return "card" + std::to_string(reinterpret_cast<uintptr_t>(device) - 1);
}

// What the script says every call about this card does.
NvmlReturn Enter(const std::string& card) {
  Sleep(Number(card + ".hang_ms").value_or(0));
  return static_cast<NvmlReturn>(Number(card + ".code").value_or(0));
}

template <typename T>
NvmlReturn Give(NvmlDevice device, const std::string& key, T* value) {
  const std::string card = Card(device);
  const NvmlReturn code = Enter(card);
  if (code != 0) return code;
  const std::optional<unsigned long long> number = Number(card + "." + key);
  if (!number.has_value()) return kNotSupported;
  *value = static_cast<T>(*number);
  return 0;
}

NvmlReturn GiveText(NvmlDevice device, const std::string& key, char* text, unsigned capacity) {
  const std::string card = Card(device);
  const NvmlReturn code = Enter(card);
  if (code != 0) return code;
  const std::string value = Value(card + "." + key).value_or("");
  if (value.size() + 1 > capacity) return kInvalidArgument;
  std::memcpy(text, value.c_str(), value.size() + 1);
  return 0;
}

}  // namespace

extern "C" {

NvmlReturn nvmlInit_v2() {
  Sleep(Number("init.hang_ms").value_or(0));
  return static_cast<NvmlReturn>(Number("init.code").value_or(0));
}
NvmlReturn nvmlShutdown() { return 0; }
NvmlReturn nvmlSystemGetDriverVersion(char* text, unsigned capacity) {
  std::snprintf(text, capacity, "%s", Value("driver").value_or("580.0-fake").c_str());
  return 0;
}
NvmlReturn nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Number("cards").value_or(0));
  return 0;
}
NvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned index, NvmlDevice* device) {
  if (index >= Number("cards").value_or(0)) return kInvalidArgument;
  *device = reinterpret_cast<NvmlDevice>(static_cast<uintptr_t>(index) + 1);
  return Enter(Card(*device));
}
#ifndef TP2_FAKE_BROKEN
NvmlReturn nvmlDeviceGetUUID(NvmlDevice device, char* text, unsigned capacity) {
  return GiveText(device, "uuid", text, capacity);
}
#endif
NvmlReturn nvmlDeviceGetName(NvmlDevice device, char* text, unsigned capacity) {
  return GiveText(device, "name", text, capacity);
}
NvmlReturn nvmlDeviceGetPciInfo_v3(NvmlDevice device, NvmlPciInfo* info) {
  return GiveText(device, "pci", info->bus_id, sizeof info->bus_id);
}
NvmlReturn nvmlDeviceGetPowerUsage(NvmlDevice device, unsigned* mw) {
  return Give(device, "power_average_mw", mw);
}
NvmlReturn nvmlDeviceGetEnforcedPowerLimit(NvmlDevice device, unsigned* mw) {
  return Give(device, "limit_mw", mw);
}
NvmlReturn nvmlDeviceGetClockInfo(NvmlDevice device, unsigned kind, unsigned* mhz) {
  return Give(device, kind == tp2::telemetry::kNvmlClockSm ? "sm_mhz" : "memory_mhz", mhz);
}
NvmlReturn nvmlDeviceGetTemperature(NvmlDevice device, unsigned, unsigned* celsius) {
  return Give(device, "temperature", celsius);
}
NvmlReturn nvmlDeviceGetPerformanceState(NvmlDevice device, int* state) {
  return Give(device, "pstate", state);
}
#ifndef TP2_FAKE_OLD
NvmlReturn nvmlDeviceGetCurrentClocksEventReasons(NvmlDevice device, unsigned long long* reasons) {
  return Give(device, "reasons", reasons);
}
NvmlReturn nvmlDeviceGetFieldValues(NvmlDevice device, int count, NvmlFieldValue* fields) {
  const NvmlReturn code = Enter(Card(device));
  for (int i = 0; code == 0 && i < count; ++i) {
    const unsigned field = fields[i].field;
    const char* key = field == tp2::telemetry::kNvmlFieldPowerInstant    ? "power_mw"
                      : field == tp2::telemetry::kNvmlFieldPowerAverage  ? "power_average_mw"
                      : field == tp2::telemetry::kNvmlFieldEnergy        ? "energy_mj"
                      : field == tp2::telemetry::kNvmlFieldReplayTotal   ? "total.replay"
                      : field == tp2::telemetry::kNvmlFieldRecoveryTotal ? "total.recovery"
                      : field == tp2::telemetry::kNvmlFieldCrcFlitTotal  ? "total.crc_flit"
                      : field == tp2::telemetry::kNvmlFieldCrcDataTotal  ? "total.crc_data"
                                                                         : "memory_temperature";
    const std::optional<unsigned long long> number = Number(Card(device) + "." + key);
    fields[i].result = number.has_value() ? 0 : kNotSupported;
    fields[i].value_type = tp2::telemetry::kNvmlUlonglong;
    fields[i].value.as_u64 = number.value_or(0);
  }
  return code;
}
#endif
NvmlReturn nvmlDeviceGetCurrentClocksThrottleReasons(NvmlDevice device,
                                                     unsigned long long* reasons) {
  return Give(device, "reasons", reasons);
}
NvmlReturn nvmlDeviceGetUtilizationRates(NvmlDevice device, NvmlUtilization* rates) {
  rates->memory = 0;
  return Give(device, "utilization", &rates->gpu);
}
NvmlReturn nvmlDeviceGetMemoryInfo(NvmlDevice device, NvmlMemory* memory) {
  const NvmlReturn code = Give(device, "total", &memory->total);
  return code != 0 ? code : Give(device, "used", &memory->used);
}
NvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(NvmlDevice device, unsigned* count,
                                                   NvmlProcess* processes) {
  const NvmlReturn code = Enter(Card(device));
  if (code != 0) return code;
  const unsigned capacity = *count;
  *count = 0;
  const std::string pids = Value(Card(device) + ".processes").value_or("");
  const char* cursor = pids.c_str();
  char* end = nullptr;
  for (unsigned long pid; (pid = std::strtoul(cursor, &end, 10)) != 0 && *count < capacity;) {
    processes[(*count)++] = {static_cast<unsigned>(pid), 1 << 30, 0, 0};
    cursor = end;
  }
  return 0;
}
NvmlReturn nvmlDeviceGetNvLinkState(NvmlDevice device, unsigned link, unsigned* is_active) {
  unsigned links = 0;
  const NvmlReturn code = Give(device, "links", &links);
  *is_active = 1;
  return code != 0 ? code : link < links ? 0 : kInvalidArgument;
}
NvmlReturn nvmlDeviceGetNvLinkErrorCounter(NvmlDevice device, unsigned link, unsigned counter,
                                           unsigned long long* value) {
  const char* const kKeys[] = {"replay", "recovery", "crc_flit", "crc_data"};
  if (counter >= 4) return kNotSupported;
  return Give(device, "link" + std::to_string(link) + "." + kKeys[counter], value);
}

}  // extern "C"
