#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "libcore/base/thread_pool.h"

namespace tp2 {
namespace {

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.thread_count(), threads);
    for (int count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
      pool.ParallelFor(count, [&](int64_t index) { ++runs[index]; });
      for (const auto& run : runs) EXPECT_EQ(run.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortLoopsInARow) {
  ThreadPool pool(4);
  std::atomic<int64_t> sum = 0;
  for (int loop = 0; loop < 2000; ++loop) pool.ParallelFor(5, [&](int64_t index) { sum += index; });
  EXPECT_EQ(sum.load(), 2000 * 10);
}

}  // namespace
}  // namespace tp2
