#include "libcore/device/arena.h"

#include <algorithm>
#include <utility>

#include "libcore/base/status_macros.h"
#include "libcore/device/cuda_status.h"

namespace tp2::device {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kChunkBytes = size_t{64} << 20;

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

absl::StatusOr<void*> Arena::Take(size_t bytes) {
  const size_t needed = RoundUp(bytes);
  if (needed > free_bytes_) {
    chunk_bytes_ = std::max(kChunkBytes, needed);
    TP2_ASSIGN_OR_RETURN(Allocation chunk,
                         Allocation::Create(Allocation::Place::kDevice, chunk_bytes_));
    chunks_.push_back(std::move(chunk));
    free_bytes_ = chunk_bytes_;
    total_bytes_ += static_cast<int64_t>(chunk_bytes_);
  }
  char* start = static_cast<char*>(chunks_.back().data()) + (chunk_bytes_ - free_bytes_);
  free_bytes_ -= needed;
  return start;
}

absl::StatusOr<void*> Arena::CopyRows(const void* host, size_t pitch_bytes, size_t row_bytes,
                                      size_t row_count) {
  TP2_ASSIGN_OR_RETURN(void* const device, Take(row_bytes * row_count));
  if (pitch_bytes == row_bytes || row_count <= 1) {
    TP2_RETURN_IF_ERROR(
        TP2_CUDA(cudaMemcpy(device, host, row_bytes * row_count, cudaMemcpyHostToDevice)));
  } else {
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMemcpy2D(device, row_bytes, host, pitch_bytes, row_bytes,
                                              row_count, cudaMemcpyHostToDevice)));
  }
  // A copy from pageable memory may still be on its way when the call returns, and owned streams do
  // not wait for the legacy one.
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaStreamSynchronize(cudaStreamLegacy)));
  return device;
}

}  // namespace tp2::device
