// Test aid: device memory between two zones of known bytes, so that a kernel that writes before or
// behind its buffer is seen.
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace tp2::device {

class RedZones {
 public:
  // Device allocations made from now on have zones. Memory checkers see finer than zones do: leave
  // them off under one.
  static void Enable();
  // Ok when all zones are whole, those of memory freed since the last call too. Waits for the
  // device. kInternal names the first damage.
  static absl::Status Check();

  // For Allocation. The size of a zone, 0 when off; marks the two zones of an allocation of `bytes`
  // between them; checks and forgets them.
  static size_t BytesPerSide();
  static absl::Status Lay(void* base, size_t bytes);
  static void Lift(void* base);
};

}  // namespace tp2::device
