// While a graph is captured on this thread nothing may allocate, free or wait: the replays would
// not do it again. The owners of memory and streams ask here first.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace tp2::device {

// In force for a scope of the capturing thread.
class CaptureGuard {
 public:
  CaptureGuard();
  ~CaptureGuard();
  CaptureGuard(const CaptureGuard&) = delete;
  CaptureGuard& operator=(const CaptureGuard&) = delete;
};

// kInternal when a guard of this thread is in force. `call` is what was asked for.
absl::Status CheckNotCapturing(std::string_view call);

}  // namespace tp2::device
