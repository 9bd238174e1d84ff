// Where weights live on the device: many small arrays packed into a few large cudaMalloc chunks,
// freed together. Arrays start on 256-byte boundaries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/device/buffer.h"

namespace tp2::device {

class Arena {
 public:
  // Copies `row_count` rows of `row_bytes`, `pitch_bytes` apart on the host, to consecutive device
  // memory. Synchronous.
  absl::StatusOr<void*> CopyRows(const void* host, size_t pitch_bytes, size_t row_bytes,
                                 size_t row_count);
  // `bytes` of device memory, not initialized.
  absl::StatusOr<void*> Take(size_t bytes);
  int64_t total_bytes() const { return total_bytes_; }

 private:
  std::vector<Allocation> chunks_;
  size_t free_bytes_ = 0;  // at the end of the newest chunk
  size_t chunk_bytes_ = 0;
  int64_t total_bytes_ = 0;
};

}  // namespace tp2::device
