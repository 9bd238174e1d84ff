#include "libcore/device/event.h"

#include <cmath>

#include "libcore/base/status_macros.h"
#include "libcore/device/cuda_status.h"

namespace tp2::device {

absl::StatusOr<Event> Event::Create() {
  Event event;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventCreate(&event.event_)));
  return event;
}

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

absl::Status Event::Record(cudaStream_t stream) const {
  return TP2_CUDA(cudaEventRecord(event_, stream));
}

absl::Status Event::HoldBack(cudaStream_t stream) const {
  return TP2_CUDA(cudaStreamWaitEvent(stream, event_));
}

absl::StatusOr<int64_t> NsBetween(const Event& from, const Event& to) {
  float ms = 0.0f;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventElapsedTime(&ms, from.event_, to.event_)));
  return std::llround(static_cast<double>(ms) * 1e6);
}

}  // namespace tp2::device
