// The states of a team of ranks in host memory, as a card's memory holds them: cleared, aligned.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "libcore/collectives/state_layout.h"

namespace tp2::coll {

// Thread-compatible.
class HostStates {
 public:
  explicit HostStates(const StateSize& size);

  // By rank.
  const std::vector<uint8_t*>& pointers() const { return pointers_; }

  // Every rank must be idle: clears all states and starts the next generation.
  void Reset();

 private:
  static constexpr std::align_val_t kAlignment{128};
  struct Free {
    void operator()(uint8_t* bytes) const { ::operator delete(bytes, kAlignment); }
  };

  int64_t state_bytes_;
  std::vector<std::unique_ptr<uint8_t, Free>> states_;
  std::vector<uint8_t*> pointers_;
};

}  // namespace tp2::coll
