// A fixed team of threads for data-parallel loops. Results never depend on the number of threads:
// every index is computed whole by one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tp2 {

// Thread-compatible: one ParallelFor at a time.
class ThreadPool {
 public:
  // `thread_count` threads in all, the caller's included; 0 means one per hardware thread.
  explicit ThreadPool(int thread_count = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int thread_count() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(index) for every index in [0, count), each once, and returns when all are done. The
  // body must not throw and must not call ParallelFor of the same pool.
  void ParallelFor(int64_t count, const std::function<void(int64_t index)>& body);

 private:
  void WorkerLoop();
  void TakeIndices();

  std::vector<std::jthread> workers_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  const std::function<void(int64_t)>* body_ = nullptr;  // guarded by mutex_, set while a loop runs
  int64_t next_ = 0;                                    // guarded by mutex_
  int64_t count_ = 0;                                   // guarded by mutex_
  int64_t chunk_ = 1;                                   // guarded by mutex_
  int64_t unfinished_ = 0;                              // guarded by mutex_
  bool is_stopping_ = false;                            // guarded by mutex_
};

}  // namespace tp2
