// How many threads may poll instead of sleeping: each holds a core, and the engine needs some too.
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <thread>

namespace tp2::server {

class SpinBudget {
 public:
  explicit SpinBudget(int count) : left_(count) {}

  // A quarter of the cores, at most four: none on small machines, where a poller would take its
  // core from whom it waits for.
  static int Default() {
    return std::min(4, static_cast<int>(std::thread::hardware_concurrency()) / 4);
  }

  bool TryTake() {
    int left = left_.load();
    while (left > 0 && !left_.compare_exchange_weak(left, left - 1)) {
    }
    return left > 0;
  }
  void Give() { ++left_; }

 private:
  std::atomic<int> left_;
};

}  // namespace tp2::server
