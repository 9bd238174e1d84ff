// The protocols' policy for threads of one process: std::atomic_ref, the steady clock, yield. A
// line is four atomic words whose tag is released last and acquired first, because 16-byte atomics
// are not lock-free everywhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "libcore/base/clock.h"
#include "libcore/collectives/line_protocol.h"
#include "libcore/collectives/protocol.h"

namespace tp2::coll {

// A thread that is one of `block_count` blocks of its rank.
class HostSys {
 public:
  static constexpr uint32_t kPollsPerCheck = 1;

  HostSys() = default;
  HostSys(int block, int block_count) : block_(block), block_count_(block_count) {}

  int block() const { return block_; }
  int block_count() const { return block_count_; }
  int thread() const { return 0; }
  int thread_count() const { return 1; }
  bool BlockAll(bool is_true) const { return is_true; }

  // SAFETY: the release of the tag publishes the payload words stored before it.
  void StoreLine(Line* to, const Line& line) const {
    for (int i = 0; i < LineProtocol::kItemWords; ++i) {
      std::atomic_ref(to->payload[i]).store(line.payload[i], std::memory_order_relaxed);
    }
    std::atomic_ref(to->tag).store(line.tag, std::memory_order_release);
  }
  Line LoadLine(const Line* from) const {
    Line* line = const_cast<Line*>(from);  // atomic_ref takes no const in C++20
    Line copy;
    copy.tag = std::atomic_ref(line->tag).load(std::memory_order_acquire);
    for (int i = 0; i < LineProtocol::kItemWords; ++i) {
      copy.payload[i] = std::atomic_ref(line->payload[i]).load(std::memory_order_relaxed);
    }
    return copy;
  }
  void StoreWords(uint32_t* to, const uint32_t (&words)[4]) const {
    for (int i = 0; i < 4; ++i) to[i] = words[i];
  }
  void LoadWords(const uint32_t* from, uint32_t (&words)[4]) const {
    for (int i = 0; i < 4; ++i) words[i] = from[i];
  }
  Status LoadStatus(const Header* header) const {
    const Status& status = header->status;
    return {LoadAcquire(&status.error), LoadAcquire(&status.cancel), LoadAcquire(&status.epoch),
            LoadAcquire(&status.generation)};
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
  uint32_t Arrive(uint32_t* word) const {
    return std::atomic_ref(*word).fetch_add(1, std::memory_order_acq_rel);
  }
  uint64_t NowNs() const { return static_cast<uint64_t>(clock_.NowNs()); }
  void Relax() const { std::this_thread::yield(); }
  void Fence() const {}  // every store above that others wait for is a release already

 private:
  SteadyClock clock_;
  int block_ = 0;
  int block_count_ = 1;
};

static_assert(ProtocolSys<HostSys>);

}  // namespace tp2::coll
