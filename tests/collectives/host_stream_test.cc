#include "libcore/collectives/host_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace tp2::coll {
namespace {

TEST(HostStreamThread, RunsInOrderAlsoBeyondItsCapacity) {
  std::vector<int> ran;
  HostStream stream(4);
  for (int i = 0; i < 1000; ++i) stream.Enqueue([&ran, i] { ran.push_back(i); });
  stream.Drain();
  ASSERT_EQ(ran.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(ran[i], i);
}

TEST(HostStreamThread, RunsWhatIsQueuedBeforeItEnds) {
  std::atomic<int> ran = 0;
  {
    HostStream stream;
    for (int i = 0; i < 100; ++i) stream.Enqueue([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 100);
}

// Why a stream is needed at all: work of one rank that waits for the other's must not keep the
// controller from queueing the latter.
TEST(HostStreamThread, WaitingWorkDoesNotBlockTheController) {
  std::atomic<bool> is_released = false;
  HostStream first, second;
  first.Enqueue([&] {
    while (!is_released) std::this_thread::yield();
  });
  second.Enqueue([&] { is_released = true; });
  first.Drain();
  EXPECT_TRUE(is_released);
}

}  // namespace
}  // namespace tp2::coll
