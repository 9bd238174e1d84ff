#include "libcore/collectives/host_stream.h"

#include <utility>

namespace tp2::coll {

HostStream::HostStream(size_t capacity) : capacity_(capacity), thread_([this] { Loop(); }) {}

HostStream::~HostStream() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
}

void HostStream::Enqueue(std::function<void()> work) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.size() < capacity_; });
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void HostStream::Drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !is_running_; });
}

bool HostStream::DrainFor(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return queue_.empty() && !is_running_; });
}

void HostStream::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !queue_.empty() || is_stopping_; });
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    is_running_ = true;
    lock.unlock();
    work();
    lock.lock();
    is_running_ = false;
    changed_.notify_all();
  }
}

}  // namespace tp2::coll
