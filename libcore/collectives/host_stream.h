// A stream for a rank without a card: one thread that runs what is queued, in order. The queue is
// bounded, so that a controller cannot run ahead without limit.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace tp2::coll {

// Thread-safe.
class HostStream {
 public:
  explicit HostStream(size_t capacity = 256);
  ~HostStream();  // runs what is queued, then ends
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  // Waits while the queue is full.
  void Enqueue(std::function<void()> work);
  // Returns when everything queued before has run.
  void Drain();
  // Whether it had within `timeout`.
  bool DrainFor(std::chrono::milliseconds timeout);

 private:
  void Loop();

  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  bool is_running_ = false;                  // guarded by mutex_: an item is out of the queue
  bool is_stopping_ = false;                 // guarded by mutex_
  std::jthread thread_;
};

}  // namespace tp2::coll
