#include "libcore/collectives/host_state.h"

#include <cstring>

namespace tp2::coll {

HostStates::HostStates(const StateSize& size) : state_bytes_(StateBytes(size)) {
  const auto bytes = static_cast<size_t>(state_bytes_);
  for (int rank = 0; rank < size.rank_count; ++rank) {
    states_.emplace_back(static_cast<uint8_t*>(::operator new(bytes, kAlignment)));
    pointers_.push_back(states_.back().get());
    std::memset(pointers_.back(), 0, bytes);
  }
}

void HostStates::Reset() {
  for (uint8_t* state : pointers_) {
    auto* header = reinterpret_cast<Header*>(state);
    const uint32_t next = NextGeneration(header->status.generation);
    std::memset(state, 0, static_cast<size_t>(state_bytes_));
    header->status.generation = next;
  }
}

}  // namespace tp2::coll
