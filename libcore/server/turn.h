// Whose turn it is with the engine: a mutex that can be waited for with a deadline. In place of
// std::timed_mutex, whose wait (pthread_mutex_clocklock) gcc 12's thread sanitizer does not see.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace tp2::server {

// Thread-safe. Meets what std::unique_lock asks of a timed mutex, hence the names.
class Turn {
 public:
  bool try_lock() {
    const std::lock_guard lock(mutex_);
    return TakeLocked();
  }
  bool try_lock_for(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    is_free_.wait_for(lock, patience, [this] { return !is_taken_; });
    return TakeLocked();
  }
  void lock() {
    std::unique_lock lock(mutex_);
    is_free_.wait(lock, [this] { return !is_taken_; });
    TakeLocked();
  }
  void unlock() {
    // Under the mutex, so that whoever takes the turn last may also destroy it.
    const std::lock_guard lock(mutex_);
    is_taken_ = false;
    is_free_.notify_one();
  }

 private:
  bool TakeLocked() {
    if (is_taken_) return false;
    is_taken_ = true;
    return true;
  }

  std::mutex mutex_;
  std::condition_variable is_free_;
  bool is_taken_ = false;
};

}  // namespace tp2::server
