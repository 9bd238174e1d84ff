// Time as a value: everything that waits or measures takes a Clock, so that tests can move time by
// hand.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tp2 {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds of a clock that never goes back; only differences mean anything.
  virtual int64_t NowNs() const = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t NowNs() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

class FakeClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_.load(); }
  void AdvanceNs(int64_t delta_ns) { now_ns_ += delta_ns; }

 private:
  std::atomic<int64_t> now_ns_{0};
};

}  // namespace tp2
