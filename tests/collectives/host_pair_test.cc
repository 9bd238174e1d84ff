// The collective protocol between two threads. Names carry "Thread": they run under the thread
// sanitizer too.
#include "libcore/collectives/host_pair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "libcore/base/rng.h"
#include "libcore/collectives/pair_latch.h"

namespace tp2::coll {
namespace {

constexpr uint64_t kShortNs = 20 * 1000 * 1000;

class HostPairThreads : public ::testing::TestWithParam<ProtocolKind> {
 protected:
  HostPairOptions Options() {
    return {.protocol = GetParam(),
            .max_values = 1000,
            .tokens = {TokenRange{0, 100}, TokenRange{100, 180}}};
  }
};

INSTANTIATE_TEST_SUITE_P(Protocols, HostPairThreads,
                         ::testing::Values(ProtocolKind::kLine, ProtocolKind::kAck),
                         [](const auto& test) { return ProtocolName(test.param); });

// Runs `body` for both ranks on a thread each.
void OnBoth(const std::function<void(int rank)>& body) {
  std::thread other([&body] { body(1); });
  body(0);
  other.join();
}

TEST_P(HostPairThreads, SumsAreEqualOnBothRanksForChangingSizes) {
  HostPair pair(Options());
  constexpr int kOperations = 400;
  std::vector<std::vector<float>> results[2];
  OnBoth([&](int rank) {
    Rng rng(7);
    for (int op = 0; op < kOperations; ++op) {
      const int64_t count = 1 + static_cast<int64_t>(rng.Below(1000));
      std::vector<float> halves[2];
      for (auto& half : halves) {
        for (int64_t i = 0; i < count; ++i) half.push_back(rng.Signed());
      }
      std::vector<float> mine = halves[rank];
      ASSERT_TRUE(pair.AllReduce(rank, mine.data(), count, mine.data()));
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(mine[i], halves[0][i] + halves[1][i]) << i;
      results[rank].push_back(mine);
    }
  });
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(pair.error(0), 0u);
}

TEST_P(HostPairThreads, ExchangeFindsTheBestTwoOfBothPartsAndTiesGoToTheLowerToken) {
  const TopTwo rank0[] = {
      {{5, 7}, {4, 9}}, {{1, 3}, {0, 4}}, {{2, 99}, {1, 0}}, {{3, 5}, kNoScore}};
  const TopTwo rank1[] = {
      {{3, 100}, {2, 120}}, {{9, 101}, {8, 179}}, {{2, 100}, {2, 101}}, {{3, 130}, {2, 131}}};
  const TopTwo expected[] = {
      {{5, 7}, {4, 9}}, {{9, 101}, {8, 179}}, {{2, 99}, {2, 100}}, {{3, 5}, {3, 130}}};
  HostPair pair(Options());
  OnBoth([&](int rank) {
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<TopTwo> best(rank == 0 ? rank0 : rank1, (rank == 0 ? rank0 : rank1) + 4);
      ASSERT_TRUE(pair.Exchange(rank, best.data(), 4));
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(best[i].first.token, expected[i].first.token) << i;
        EXPECT_EQ(best[i].first.score, expected[i].first.score) << i;
        EXPECT_EQ(best[i].second.token, expected[i].second.token) << i;
        EXPECT_EQ(best[i].second.score, expected[i].second.score) << i;
      }
    }
  });
}

TEST_P(HostPairThreads, LateRankIsWaitedFor) {
  HostPair pair(Options());
  OnBoth([&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    float value = 1;
    EXPECT_TRUE(pair.AllReduce(rank, &value, 1, &value));
    EXPECT_EQ(value, 2);
    EXPECT_TRUE(pair.CloseStep(rank));
  });
}

TEST_P(HostPairThreads, LostRankEndsInATimeoutOnOneSideAndAPeerTimeoutOnTheOther) {
  HostPairOptions options = Options();
  options.timeout_ns = kShortNs;
  HostPair pair(options);
  float value = 1;
  EXPECT_FALSE(pair.AllReduce(0, &value, 1, &value));
  EXPECT_EQ(pair.error(0), kLocalTimeout);
  EXPECT_EQ(pair.error(1), kPeerTimeout);
  // After the error bit neither rank starts anything, whatever arrives.
  EXPECT_FALSE(pair.AllReduce(1, &value, 1, &value));
  EXPECT_FALSE(pair.CloseStep(0));
  EXPECT_EQ(ErrorText(pair.error(0) | pair.error(1)), "local timeout, peer timeout");
}

TEST_P(HostPairThreads, TokenOutsideThePeersPartIsRefusedOnBothRanksInTheSameStep) {
  HostPairOptions options = Options();
  options.timeout_ns = uint64_t{10} * 1000 * 1000 * 1000;
  HostPair pair(options);
  bool is_closed[2];
  OnBoth([&](int rank) {
    TopTwo best = {{1, rank == 0 ? 5 : 99}, {0, rank == 0 ? 6 : 100}};  // 99 is rank 0's
    pair.Exchange(rank, &best, 1);
    is_closed[rank] = pair.CloseStep(rank);
  });
  EXPECT_FALSE(is_closed[0]);
  EXPECT_FALSE(is_closed[1]);
  EXPECT_EQ(pair.error(0), kInvalidId);
  EXPECT_EQ(pair.error(1), kInvalidId);
}

TEST_P(HostPairThreads, CancelEndsAParkedWaitOnBothRanks) {
  HostPairOptions options = Options();
  options.timeout_ns = uint64_t{60} * 1000 * 1000 * 1000;
  HostPair pair(options);
  std::thread parked([&] {
    float value = 1;
    EXPECT_FALSE(pair.AllReduce(0, &value, 1, &value));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  pair.Cancel();
  parked.join();
  float value = 1;
  EXPECT_FALSE(pair.AllReduce(1, &value, 1, &value));
  EXPECT_EQ(pair.error(0), kCancelled);
  EXPECT_EQ(pair.error(1), kCancelled);
}

TEST_P(HostPairThreads, EpochsNeverWrapAndAResetStartsTheNextGeneration) {
  HostPairOptions options = Options();
  options.max_epoch = 3;
  HostPair pair(options);
  for (int generation = 0; generation < 20; ++generation) {
    int done[2] = {};
    OnBoth([&](int rank) {
      for (int op = 0; op < 5; ++op) {
        float value = 1;
        done[rank] += pair.AllReduce(rank, &value, 1, &value);
      }
    });
    // The first rank to need a fourth epoch may end the other's third operation.
    EXPECT_EQ(std::max(done[0], done[1]), 3);
    EXPECT_GE(std::min(done[0], done[1]), 2);
    EXPECT_EQ(pair.error(0), kEpochExhausted);
    EXPECT_EQ(pair.error(1), kEpochExhausted);
    pair.Reset();
    EXPECT_EQ(pair.error(0), 0u);
  }
}

}  // namespace
}  // namespace tp2::coll
