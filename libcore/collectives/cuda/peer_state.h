// One rank's state on its own card: plain cudaMalloc memory outside any caching allocator, checked
// with the driver, freed only while its context is whole.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace tp2::coll {

class PeerState {
 public:
  // Cleared. Not during a capture. Errors: kResourceExhausted, kFailedPrecondition when the
  // allocation is not what peers can use, kAborted.
  static absl::StatusOr<PeerState> Create(int ordinal, int64_t byte_count);
  PeerState() = default;
  ~PeerState();
  PeerState(PeerState&& other) noexcept
      : ordinal_(other.ordinal_), data_(std::exchange(other.data_, nullptr)) {}
  PeerState& operator=(PeerState&& other) noexcept {
    std::swap(ordinal_, other.ordinal_);
    std::swap(data_, other.data_);
    return *this;
  }

  uint8_t* data() const { return data_; }
  int ordinal() const { return ordinal_; }
  // Leaves the memory to the process's end: kernels of a poisoned pair may still write to it.
  void Abandon() { data_ = nullptr; }

 private:
  int ordinal_ = 0;
  uint8_t* data_ = nullptr;
};

}  // namespace tp2::coll
