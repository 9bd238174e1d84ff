// Notices that readings have stopped coming, once per stop.
#pragma once

#include <cstdint>

namespace tp2::telemetry {

// Thread-compatible. Times are of any clock that never goes back.
class StaleWatch {
 public:
  StaleWatch(int64_t limit_ns, int64_t now_ns) : limit_ns_(limit_ns), last_ns_(now_ns) {}

  // True when this reading ends a stop that Check reported.
  bool Arrived(int64_t now_ns) {
    last_ns_ = now_ns;
    const bool was_stale = is_stale_;
    is_stale_ = false;
    return was_stale;
  }

  // True at the first call after `limit_ns` without a reading.
  bool Check(int64_t now_ns) {
    if (is_stale_ || now_ns - last_ns_ < limit_ns_) return false;
    is_stale_ = true;
    return true;
  }

  bool is_stale() const { return is_stale_; }

 private:
  int64_t limit_ns_;
  int64_t last_ns_;
  bool is_stale_ = false;
};

}  // namespace tp2::telemetry
