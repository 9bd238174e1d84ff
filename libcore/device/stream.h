// An owned stream. Move-only.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/status/statusor.h"

namespace tp2::device {

class Stream {
 public:
  // kWork never waits for the legacy default stream; kCapture is for graph.h alone.
  enum class Kind { kWork, kCapture };

  Stream() = default;
  // On the current device.
  static absl::StatusOr<Stream> Create(Kind kind = Kind::kWork);
  ~Stream();
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }

  cudaStream_t get() const { return stream_; }
  // Waits for everything enqueued so far. kInternal inside a capture.
  absl::Status Synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace tp2::device
