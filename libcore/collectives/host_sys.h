// The protocol's policy for two threads of one process: std::atomic_ref, the steady clock, yield.
// A line is four atomic words whose tag is released last and acquired first, because 16-byte
// atomics are not lock-free everywhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "libcore/base/clock.h"
#include "libcore/collectives/protocol.h"

namespace tp2::coll {

class HostSys {
 public:
  // SAFETY: the release of the tag publishes the payload words stored before it.
  void StoreLine(Line* to, const Line& line) const {
    for (int i = 0; i < kLineValues; ++i) {
      std::atomic_ref(to->payload[i]).store(line.payload[i], std::memory_order_relaxed);
    }
    std::atomic_ref(to->tag).store(line.tag, std::memory_order_release);
  }
  Line LoadLine(const Line* from) const {
    Line* line = const_cast<Line*>(from);  // atomic_ref takes no const in C++20
    Line copy;
    copy.tag = std::atomic_ref(line->tag).load(std::memory_order_acquire);
    for (int i = 0; i < kLineValues; ++i) {
      copy.payload[i] = std::atomic_ref(line->payload[i]).load(std::memory_order_relaxed);
    }
    return copy;
  }
  uint32_t LoadAcquire(const uint32_t* word) const {
    return std::atomic_ref(*const_cast<uint32_t*>(word)).load(std::memory_order_acquire);
  }
  void StoreRelease(uint32_t* word, uint32_t value) const {
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }
  void OrRelease(uint32_t* word, uint32_t bits) const {
    std::atomic_ref(*word).fetch_or(bits, std::memory_order_acq_rel);
  }
  uint64_t NowNs() const { return static_cast<uint64_t>(clock_.NowNs()); }
  void Relax() const { std::this_thread::yield(); }

 private:
  SteadyClock clock_;
};

}  // namespace tp2::coll
