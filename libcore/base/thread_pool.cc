#include "libcore/base/thread_pool.h"

#include <algorithm>

#include "libcore/base/check.h"

namespace tp2 {

ThreadPool::ThreadPool(int thread_count) {
  if (thread_count <= 0) thread_count = static_cast<int>(std::thread::hardware_concurrency());
  for (int i = 1; i < thread_count; ++i) workers_.emplace_back([this] { WorkerLoop(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  start_.notify_all();
}

void ThreadPool::ParallelFor(int64_t count, const std::function<void(int64_t)>& body) {
  if (count <= 0) return;
  if (workers_.empty() || count == 1) {
    for (int64_t index = 0; index < count; ++index) body(index);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    TP2_CHECK(body_ == nullptr);
    body_ = &body;
    next_ = 0;
    count_ = count;
    unfinished_ = count;
    // About eight chunks a thread: small enough to balance, large enough that the lock is not felt.
    chunk_ = std::max<int64_t>(1, count / (8 * thread_count()));
  }
  start_.notify_all();
  TakeIndices();
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return unfinished_ == 0; });
  body_ = nullptr;
}

void ThreadPool::WorkerLoop() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [this] { return is_stopping_ || (body_ != nullptr && next_ < count_); });
      if (is_stopping_) return;
    }
    TakeIndices();
  }
}

void ThreadPool::TakeIndices() {
  for (;;) {
    int64_t begin, end;
    const std::function<void(int64_t)>* body;
    {
      std::lock_guard lock(mutex_);
      if (body_ == nullptr || next_ >= count_) return;
      begin = next_;
      end = std::min(count_, begin + chunk_);
      next_ = end;
      body = body_;
    }
    for (int64_t index = begin; index < end; ++index) (*body)(index);
    std::lock_guard lock(mutex_);
    unfinished_ -= end - begin;
    if (unfinished_ == 0) done_.notify_all();
  }
}

}  // namespace tp2
