// A point in a stream's work with its time on the device. Move-only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tp2::device {

class Event {
 public:
  Event() = default;
  // On the current device, with a time stamp.
  static absl::StatusOr<Event> Create();
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }

  // After everything enqueued on `stream` so far.
  absl::Status Record(cudaStream_t stream) const;
  // What is enqueued on `stream` later waits for the latest Record.
  absl::Status HoldBack(cudaStream_t stream) const;

 private:
  friend absl::StatusOr<int64_t> NsBetween(const Event& from, const Event& to);

  cudaEvent_t event_ = nullptr;
};

// Both recorded and passed. The hardware counts in steps of about half a microsecond.
absl::StatusOr<int64_t> NsBetween(const Event& from, const Event& to);

}  // namespace tp2::device
