// Which card to use: by UUID, because ordinals change with the environment and between boots.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tp2::device {

struct DeviceInfo {
  int ordinal = 0;
  std::string uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  std::string name;
  int capability = 0;  // 86 for sm_86
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
};

// Lowest capability with a kernel in this build.
inline constexpr int kMinCapability = 86;

// All cards that the driver shows, usable or not. The first call into CUDA of the process asks for
// eager module loading, unless the environment says otherwise: a kernel's first use must not
// allocate. Errors: kUnavailable with the driver's reason.
absl::StatusOr<std::vector<DeviceInfo>> ListDevices();

// The card with this UUID (a unique prefix is enough), or the first usable one for an empty
// `uuid`. Errors: kUnavailable, naming what was found.
absl::StatusOr<DeviceInfo> SelectDevice(const std::string& uuid);

// The first `count` of the cards that `uuids` name, in their order, or of the usable ones without
// any. Errors: kUnavailable as SelectDevice; kInvalidArgument for too few UUIDs.
absl::StatusOr<std::vector<DeviceInfo>> SelectDevices(const std::vector<std::string>& uuids,
                                                      int count);

}  // namespace tp2::device
