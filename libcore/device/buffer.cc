#include "libcore/device/buffer.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "libcore/base/status_macros.h"
#include "libcore/device/cuda_status.h"

namespace tp2::device {

absl::StatusOr<Allocation> Allocation::Create(Place place, size_t bytes) {
  Allocation memory;
  memory.place_ = place;
  if (bytes == 0) return memory;
  if (place == Place::kPinnedHost) {
    TP2_RETURN_IF_ERROR(ToStatus(cudaMallocHost(&memory.data_, bytes),
                                 absl::StrCat("cudaMallocHost of ", bytes, " bytes")));
    std::memset(memory.data_, 0, bytes);
    return memory;
  }
  TP2_RETURN_IF_ERROR(
      ToStatus(cudaMalloc(&memory.data_, bytes), absl::StrCat("cudaMalloc of ", bytes, " bytes")));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMemset(memory.data_, 0, bytes)));
  // The fill runs on the legacy stream, which owned streams do not wait for.
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaStreamSynchronize(cudaStreamLegacy)));
  return memory;
}

Allocation::~Allocation() {
  if (data_ == nullptr) return;
  if (place_ == Place::kPinnedHost) {
    cudaFreeHost(data_);
  } else {
    cudaFree(data_);
  }
}

}  // namespace tp2::device
