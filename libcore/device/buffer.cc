#include "libcore/device/buffer.h"

#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "libcore/base/status_macros.h"
#include "libcore/device/capture_guard.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/red_zones.h"

namespace tp2::device {
namespace {

std::atomic<int64_t> allocation_count{0};

}  // namespace

int64_t Allocation::created_count() { return allocation_count; }

absl::StatusOr<Allocation> Allocation::Create(Place place, size_t bytes) {
  Allocation memory;
  memory.place_ = place;
  if (bytes == 0) return memory;
  TP2_RETURN_IF_ERROR(CheckNotCapturing(absl::StrCat("an allocation of ", bytes, " bytes")));
  ++allocation_count;
  if (place == Place::kDevice) {
    TP2_RETURN_IF_ERROR(memory.CreateOnDevice(bytes));
    return memory;
  }
  TP2_RETURN_IF_ERROR(ToStatus(cudaMallocHost(&memory.base_, bytes),
                               absl::StrCat("cudaMallocHost of ", bytes, " bytes")));
  std::memset(memory.base_, 0, bytes);
  memory.data_ = memory.base_;
  return memory;
}

absl::Status Allocation::CreateOnDevice(size_t bytes) {
  const size_t zone = RedZones::BytesPerSide();
  const size_t total = bytes + 2 * zone;
  TP2_RETURN_IF_ERROR(
      ToStatus(cudaMalloc(&base_, total), absl::StrCat("cudaMalloc of ", total, " bytes")));
  data_ = static_cast<std::byte*>(base_) + zone;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMemset(data_, 0, bytes)));
  if (zone != 0) TP2_RETURN_IF_ERROR(RedZones::Lay(base_, bytes));
  // The fill runs on the legacy stream, which owned streams do not wait for.
  return TP2_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
}

Allocation::~Allocation() {
  if (base_ == nullptr) return;
  if (place_ == Place::kPinnedHost) {
    cudaFreeHost(base_);
    return;
  }
  if (base_ != data_) RedZones::Lift(base_);
  cudaFree(base_);
}

}  // namespace tp2::device
