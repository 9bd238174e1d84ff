// The part of NVML's C interface that we call: layouts, numbers and prototypes, declared here
// because the CUDA packages come without nvml.h. Read-only calls and nothing else: no function that
// changes a card is named anywhere in the tools, and a test looks for such names in the binaries.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tp2::telemetry {

using NvmlDevice = void*;
using NvmlReturn = int;

inline constexpr NvmlReturn kNvmlSuccess = 0;
inline constexpr NvmlReturn kNvmlNoPermission = 4;
inline constexpr NvmlReturn kNvmlInsufficientSize = 7;
inline constexpr NvmlReturn kNvmlDriverNotLoaded = 9;
inline constexpr NvmlReturn kNvmlTimeout = 10;
inline constexpr NvmlReturn kNvmlFunctionNotFound = 13;
inline constexpr NvmlReturn kNvmlGpuIsLost = 15;
inline constexpr NvmlReturn kNvmlResetRequired = 16;
inline constexpr NvmlReturn kNvmlLibraryMismatch = 18;

inline constexpr unsigned kNvmlClockSm = 1;
inline constexpr unsigned kNvmlClockMemory = 2;
inline constexpr unsigned kNvmlTemperatureCore = 0;
// Counters of one NVLink.
inline constexpr unsigned kNvmlLinkReplay = 0;
inline constexpr unsigned kNvmlLinkRecovery = 1;
inline constexpr unsigned kNvmlLinkCrcFlit = 2;
inline constexpr unsigned kNvmlLinkCrcData = 3;
inline constexpr unsigned kNvmlMaxLinks = 18;
// Field values. The link counters are sums over all links of a card.
inline constexpr unsigned kNvmlFieldCrcFlitTotal = 38;
inline constexpr unsigned kNvmlFieldCrcDataTotal = 45;
inline constexpr unsigned kNvmlFieldReplayTotal = 52;
inline constexpr unsigned kNvmlFieldRecoveryTotal = 59;
inline constexpr unsigned kNvmlFieldMemoryTemperature = 82;
inline constexpr unsigned kNvmlFieldEnergy = 83;
inline constexpr unsigned kNvmlFieldPowerAverage = 185;
inline constexpr unsigned kNvmlFieldPowerInstant = 186;

struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(NvmlPciInfo) == 68 && offsetof(NvmlPciInfo, bus_id) == 36);

struct NvmlMemory {
  uint64_t total;
  uint64_t free;
  uint64_t used;
};
static_assert(sizeof(NvmlMemory) == 24);

struct NvmlUtilization {
  unsigned gpu;
  unsigned memory;
};

struct NvmlProcess {
  unsigned pid;
  uint64_t used_bytes;  // all ones: not available
  unsigned gpu_instance;
  unsigned compute_instance;
};
static_assert(sizeof(NvmlProcess) == 24);

enum NvmlValueType : int { kNvmlDouble = 0, kNvmlUint = 1, kNvmlUlong = 2, kNvmlUlonglong = 3 };

struct NvmlFieldValue {
  unsigned field;
  unsigned scope;
  int64_t timestamp_us;
  int64_t latency_us;
  int value_type;
  NvmlReturn result;
  union {
    double as_double;
    unsigned as_uint;
    uint64_t as_u64;
  } value;
};
static_assert(sizeof(NvmlFieldValue) == 40 && offsetof(NvmlFieldValue, result) == 28 &&
              offsetof(NvmlFieldValue, value) == 32);

// TP2_NVML_REQUIRED(member, symbol, arguments): without one of these nothing works.
#define TP2_NVML_REQUIRED(X)                                                   \
  X(init, "nvmlInit_v2", (void))                                               \
  X(shutdown, "nvmlShutdown", (void))                                          \
  X(device_count, "nvmlDeviceGetCount_v2", (unsigned*))                        \
  X(handle_by_index, "nvmlDeviceGetHandleByIndex_v2", (unsigned, NvmlDevice*)) \
  X(uuid, "nvmlDeviceGetUUID", (NvmlDevice, char*, unsigned))

// Without one of these its values are absent.
#define TP2_NVML_OPTIONAL(X)                                                                     \
  X(driver_version, "nvmlSystemGetDriverVersion", (char*, unsigned))                             \
  X(name, "nvmlDeviceGetName", (NvmlDevice, char*, unsigned))                                    \
  X(pci_info, "nvmlDeviceGetPciInfo_v3", (NvmlDevice, NvmlPciInfo*))                             \
  X(power_usage, "nvmlDeviceGetPowerUsage", (NvmlDevice, unsigned*))                             \
  X(power_limit, "nvmlDeviceGetEnforcedPowerLimit", (NvmlDevice, unsigned*))                     \
  X(clock_info, "nvmlDeviceGetClockInfo", (NvmlDevice, unsigned, unsigned*))                     \
  X(temperature, "nvmlDeviceGetTemperature", (NvmlDevice, unsigned, unsigned*))                  \
  X(performance_state, "nvmlDeviceGetPerformanceState", (NvmlDevice, int*))                      \
  X(event_reasons, "nvmlDeviceGetCurrentClocksEventReasons", (NvmlDevice, unsigned long long*))  \
  X(throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons",                               \
    (NvmlDevice, unsigned long long*))                                                           \
  X(utilization, "nvmlDeviceGetUtilizationRates", (NvmlDevice, NvmlUtilization*))                \
  X(memory, "nvmlDeviceGetMemoryInfo", (NvmlDevice, NvmlMemory*))                                \
  X(processes, "nvmlDeviceGetComputeRunningProcesses_v3", (NvmlDevice, unsigned*, NvmlProcess*)) \
  X(link_state, "nvmlDeviceGetNvLinkState", (NvmlDevice, unsigned, unsigned*))                   \
  X(link_errors, "nvmlDeviceGetNvLinkErrorCounter",                                              \
    (NvmlDevice, unsigned, unsigned, unsigned long long*))                                       \
  X(field_values, "nvmlDeviceGetFieldValues", (NvmlDevice, int, NvmlFieldValue*))

// Null where the library has no such symbol; never null for the required ones of an open Nvml.
struct NvmlFunctions {
#define TP2_NVML_MEMBER(member, symbol, arguments) NvmlReturn(*member) arguments = nullptr;
  TP2_NVML_REQUIRED(TP2_NVML_MEMBER)
  TP2_NVML_OPTIONAL(TP2_NVML_MEMBER)
#undef TP2_NVML_MEMBER
};

}  // namespace tp2::telemetry
