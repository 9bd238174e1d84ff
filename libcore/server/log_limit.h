// Keeps strangers from filling the log: an event is let through a few times per period, the rest is
// counted and told with the next one let through. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "libcore/base/clock.h"

namespace tp2::server {

class LogLimit {
 public:
  explicit LogLimit(const Clock* clock, int per_period = 5, int64_t period_ms = 10'000)
      : clock_(clock), per_period_(per_period), period_ns_(period_ms * 1'000'000) {}

  // Nothing: keep quiet. A number: say it, and that so many went unsaid before.
  std::optional<int64_t> Pass() {
    const std::lock_guard lock(mutex_);
    const int64_t now_ns = clock_->NowNs();
    if (!has_begun_ || now_ns - period_begin_ns_ >= period_ns_) {
      has_begun_ = true;
      period_begin_ns_ = now_ns;
      passed_ = 0;
    }
    if (passed_ >= per_period_) {
      ++unsaid_;
      return std::nullopt;
    }
    ++passed_;
    const int64_t unsaid = unsaid_;
    unsaid_ = 0;
    return unsaid;
  }

 private:
  const Clock* clock_;
  const int per_period_;
  const int64_t period_ns_;
  std::mutex mutex_;
  bool has_begun_ = false;
  int64_t period_begin_ns_ = 0;
  int passed_ = 0;
  int64_t unsaid_ = 0;
};

}  // namespace tp2::server
