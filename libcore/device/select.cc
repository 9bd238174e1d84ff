#include "libcore/device/select.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/device/cuda_status.h"

namespace tp2::device {
namespace {

std::string Minimum() { return absl::StrCat("sm_", kMinCapability, " or newer"); }

std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    const bool starts_group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += absl::StrFormat(starts_group ? "-%02x" : "%02x", static_cast<uint8_t>(uuid.bytes[i]));
  }
  return text;
}

absl::Status NoUsableGpu(const std::string& expected, const std::string& got) {
  return MakeError(
      absl::StatusCode::kUnavailable,
      {.what = "no usable GPU", .expected = expected, .got = got, .next = "use --backend cpu"});
}

std::vector<DeviceInfo> Usable(const std::vector<DeviceInfo>& devices, const std::string& uuid) {
  std::vector<DeviceInfo> usable;
  for (const DeviceInfo& device : devices) {
    if (device.capability >= kMinCapability && device.uuid.rfind(uuid, 0) == 0) {
      usable.push_back(device);
    }
  }
  return usable;
}

std::string Summary(const std::vector<DeviceInfo>& devices) {
  if (devices.empty()) return "no card";
  std::string text;
  for (const DeviceInfo& device : devices) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", device.name, " sm_", device.capability, " ",
                    device.uuid);
  }
  return text;
}

}  // namespace

absl::StatusOr<std::vector<DeviceInfo>> ListDevices() {
  // Nothing reads it before: the runtime looks at its first call.
  setenv("CUDA_MODULE_LOADING", "EAGER", /*replace=*/0);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess && error != cudaErrorNoDevice) {
    return NoUsableGpu("a CUDA driver", cudaGetErrorString(error));
  }
  std::vector<DeviceInfo> devices;
  for (int ordinal = 0; error == cudaSuccess && ordinal < count; ++ordinal) {
    cudaDeviceProp properties;
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaGetDeviceProperties(&properties, ordinal)));
    devices.push_back({.ordinal = ordinal,
                       .uuid = UuidText(properties.uuid),
                       .name = properties.name,
                       .capability = properties.major * 10 + properties.minor,
                       .multiprocessors = properties.multiProcessorCount,
                       .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)});
  }
  return devices;
}

absl::StatusOr<DeviceInfo> SelectDevice(const std::string& uuid) {
  TP2_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, ListDevices());
  const std::vector<DeviceInfo> found = Usable(devices, uuid);
  if (uuid.empty() && !found.empty()) return found.front();
  if (found.size() == 1) return found.front();
  return NoUsableGpu(uuid.empty() ? absl::StrCat("a card of ", Minimum())
                                  : absl::StrCat("one card ", uuid, " of ", Minimum()),
                     Summary(devices));
}

absl::StatusOr<std::vector<DeviceInfo>> SelectDevices(const std::vector<std::string>& uuids,
                                                      int count) {
  std::vector<DeviceInfo> selected;
  if (uuids.empty()) {
    TP2_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, ListDevices());
    selected = Usable(devices, "");
    if (selected.size() < static_cast<size_t>(count)) {
      return NoUsableGpu(absl::StrCat(count, count == 1 ? " card of " : " cards of ", Minimum()),
                         Summary(devices));
    }
    selected.resize(static_cast<size_t>(count));
    return selected;
  }
  if (uuids.size() < static_cast<size_t>(count)) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = "UUIDs of cards",
                      .expected = absl::StrCat(count, ", in rank order"),
                      .got = absl::StrCat(uuids.size())});
  }
  for (int index = 0; index < count; ++index) {
    TP2_ASSIGN_OR_RETURN(const DeviceInfo device, SelectDevice(uuids[index]));
    selected.push_back(device);
  }
  return selected;
}

}  // namespace tp2::device
