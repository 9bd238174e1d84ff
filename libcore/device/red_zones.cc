#include "libcore/device/red_zones.h"

#include <cuda_runtime_api.h>

#include <array>
#include <map>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/device/cuda_status.h"

namespace tp2::device {
namespace {

constexpr size_t kZoneBytes = 4096;  // keeps the alignment of what lies behind it
constexpr int kCanary = 0xA5;

// One thread drives the devices, so nothing here is locked.
bool is_enabled = false;
std::map<void*, size_t> laid;  // base of an allocation -> bytes between its zones
absl::Status damage;           // found when memory was freed

absl::Status CheckZone(const std::byte* zone, size_t bytes, const char* side) {
  std::array<unsigned char, kZoneBytes> copy;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMemcpy(copy.data(), zone, kZoneBytes, cudaMemcpyDeviceToHost)));
  for (size_t i = 0; i < kZoneBytes; ++i) {
    if (copy[i] == kCanary) continue;
    return MakeError(
        absl::StatusCode::kInternal,
        {.what = absl::StrCat("red zone ", side, " device memory of ", bytes, " bytes"),
         .expected = "no write",
         .got = absl::StrCat("one at byte ", i, " of the zone")});
  }
  return absl::OkStatus();
}

absl::Status CheckZones(const void* base, size_t bytes) {
  const std::byte* front = static_cast<const std::byte*>(base);
  TP2_RETURN_IF_ERROR(CheckZone(front, bytes, "before"));
  return CheckZone(front + kZoneBytes + bytes, bytes, "behind");
}

}  // namespace

void RedZones::Enable() { is_enabled = true; }

size_t RedZones::BytesPerSide() { return is_enabled ? kZoneBytes : 0; }

absl::Status RedZones::Lay(void* base, size_t bytes) {
  std::byte* front = static_cast<std::byte*>(base);
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMemset(front, kCanary, kZoneBytes)));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMemset(front + kZoneBytes + bytes, kCanary, kZoneBytes)));
  laid[base] = bytes;
  return absl::OkStatus();
}

void RedZones::Lift(void* base) {
  const auto zones = laid.find(base);
  if (zones == laid.end()) return;
  // Owned streams may still write.
  const bool is_idle = cudaDeviceSynchronize() == cudaSuccess;
  if (is_idle && damage.ok()) damage = CheckZones(base, zones->second);
  laid.erase(zones);
}

absl::Status RedZones::Check() {
  if (!laid.empty()) TP2_RETURN_IF_ERROR(TP2_CUDA(cudaDeviceSynchronize()));
  for (const auto& [base, bytes] : laid) {
    if (damage.ok()) damage = CheckZones(base, bytes);
  }
  absl::Status found = damage;
  damage = absl::OkStatus();
  return found;
}

}  // namespace tp2::device
