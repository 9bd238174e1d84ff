// Blocks of several threads, as on a card: the barrier of a block is a real one. Names carry
// "Thread": they run under the thread sanitizer, which also must see the mutants' races.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <thread>
#include <vector>

#include "libcore/collectives/host_state.h"
#include "libcore/collectives/host_sys.h"
#include "libcore/collectives/operations.h"

namespace tp2::coll {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kHasThreadSanitizer = true;
#else
constexpr bool kHasThreadSanitizer = false;
#endif

constexpr int kThreads = 2;
constexpr int64_t kWords = 64;

struct Block {
  std::barrier<> barrier{kThreads};
  std::atomic<bool> are_all[2] = {true, true};
};

enum class Broken { kNothing, kRelaxedFlags };

// One of a block's threads. With kRelaxedFlags what a flag should publish is not published.
template <Broken kBroken>
class BlockSys : public HostSys {
 public:
  BlockSys(Block& block, int thread) : block_(block), thread_(thread) {}

  int thread() const { return thread_; }
  int thread_count() const { return kThreads; }
  // Two words in turn: the other one is set back while nobody can be using it.
  bool BlockAll(bool is_true) {
    std::atomic<bool>& all = block_.are_all[phase_];
    if (!is_true) all.store(false);
    block_.barrier.arrive_and_wait();
    const bool result = all.load();
    block_.barrier.arrive_and_wait();
    if (thread_ == 0) all.store(true);
    phase_ = 1 - phase_;
    return result;
  }
  void StoreRelease(uint32_t* word, uint32_t value) const {
    std::atomic_ref(*word).store(value, kBroken == Broken::kRelaxedFlags
                                            ? std::memory_order_relaxed
                                            : std::memory_order_release);
  }

 private:
  Block& block_;
  const int thread_;
  int phase_ = 0;
};

// 2 ranks of one block of two threads; returns how many sums were wrong.
template <class Protocol, Broken kBroken>
int RunSums(ProtocolKind kind, int operations) {
  const StateSize size = {.protocol = kind, .rank_count = 2, .max_words = kWords};
  HostStates states(size);
  std::vector<RankView> views;
  for (int rank = 0; rank < 2; ++rank) {
    views.push_back(MakeRankView({.size = size, .states = states.pointers(), .tokens = {}}, rank));
  }
  Block blocks[2];
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int member = 0; member < 2 * kThreads; ++member) {
    threads.emplace_back([&, rank = member / kThreads, thread = member % kThreads] {
      BlockSys<kBroken> sys(blocks[rank], thread);
      for (int op = 0; op < operations; ++op) {
        const bool is_done = AllReduce<Protocol>(
            sys, views[rank], kWords,
            [&](int64_t i) { return static_cast<float>(1 + rank + 2 * op + i); },
            [&](int64_t i, float sum) {
              if (sum != static_cast<float>(3 + 4 * op + 2 * i)) ++wrong;
            });
        if (!is_done) ++wrong;
        sys.BlockAll(true);  // the kernel's end
      }
      if (!CloseStep<Protocol>(sys, views[rank])) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

TEST(BlockThreads, SumsOfBlocksOfTwoThreadsAreRight) {
  EXPECT_EQ((RunSums<LineProtocol, Broken::kNothing>(ProtocolKind::kLine, 300)), 0);
  EXPECT_EQ((RunSums<AckProtocol, Broken::kNothing>(ProtocolKind::kAck, 300)), 0);
}

// The sanitizer turns a report into an exit code of its own.
[[noreturn]] void RunBrokenAndExit() {
  RunSums<AckProtocol, Broken::kRelaxedFlags>(ProtocolKind::kAck, 50);
  std::exit(0);
}

// A test of the sanitizer stage itself: it would be worth nothing if it passed this.
TEST(BlockThreads, SanitizerReportsAFlagThatPublishesNothing) {
  if (!kHasThreadSanitizer) GTEST_SKIP() << "needs the thread sanitizer (preset tsan)";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(RunBrokenAndExit(), ::testing::ExitedWithCode(66), "data race");
}

}  // namespace
}  // namespace tp2::coll
