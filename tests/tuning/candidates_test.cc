// Candidates: within what the kernels allow on every size of card, and a reason for every other.
#include "libcore/tuning/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "libcore/tuning/launch_limits.h"

namespace tp2::tuning {
namespace {

// Multiprocessors: the least, small ones of public tuner faults, an RTX 3090, an H200.
constexpr int kCards[] = {1, 2, 36, 82, 132};

ProductLaunch Launch(int bits, int k, std::vector<int> outputs, int rows) {
  ProductLaunch launch = {"test", bits, k, outputs, static_cast<int>(outputs.size()), 0, rows};
  launch.max_outputs = *std::max_element(outputs.begin(), outputs.end());
  return launch;
}

std::vector<ProductLaunch> Launches() {
  return {Launch(5, 5120, {1536, 512}, 5),   Launch(5, 1280, {32768}, 5),
          Launch(5, 4096, {5120, 5120}, 20), Launch(6, 5120, {64640}, 4),
          Launch(5, 15360, {5120}, 24),      Launch(2, 128, {128}, 1),
          Launch(8, 20480, {7168}, 12),      Launch(6, 5120, {129280}, 5)};
}

std::set<int> SplitsOf(const CandidateList& list) {
  std::set<int> splits;
  for (const Choice& choice : list.choices) {
    splits.insert(std::get<ProductChoice>(choice).splits);
  }
  return splits;
}

TEST(Candidates, OfProductsStayWithinWhatKernelsAllowOnEveryCard) {
  for (const int multiprocessors : kCards) {
    for (const ProductLaunch& launch : Launches()) {
      const CandidateList list = ProductCandidates(launch, multiprocessors);
      ASSERT_FALSE(list.choices.empty());
      EXPECT_TRUE(std::is_sorted(list.choices.begin(), list.choices.end(), IsSmaller));
      for (const int splits : SplitsOf(list)) {
        EXPECT_GE(splits, LeastSplits(launch.k));
        EXPECT_LE(splits, MostSplits(launch.k));
        // A part's int32 sums: 127 * 1005 * inputs.
        EXPECT_LE((launch.k + splits - 1) / splits, kMaxPartInputs + kBlockOutputs);
        EXPECT_TRUE(splits == LeastSplits(launch.k) || launch.has_room_for_sums());
      }
      EXPECT_EQ(
          SplitsOf(list).count(std::get<ProductChoice>(SafeChoice(launch, multiprocessors)).splits),
          1u)
          << launch.k << " on " << multiprocessors;
    }
  }
}

TEST(Candidates, EveryValueIsTimedOrHasAReason) {
  const CandidateList list = ProductCandidates(Launch(5, 5120, {1536, 512}, 5), 132);
  std::set<std::string> pruned;
  for (const Pruned& one : list.pruned) {
    EXPECT_NE(one.reason, "");
    pruned.insert(one.choice);
  }
  for (int splits = 1; splits <= 20; ++splits) {
    const Choice choice = ProductChoice{splits};
    const bool is_timed = std::count(list.choices.begin(), list.choices.end(), choice) == 1;
    EXPECT_NE(is_timed, pruned.count(ChoiceText(choice)) == 1) << splits;
  }
  EXPECT_EQ(pruned.count("splits=21 and more"), 1u) << "parts of fewer than 256 inputs";
}

TEST(Candidates, ALaunchWithoutRoomForItsSumsHasNoChoice) {
  const CandidateList list = ProductCandidates(Launch(6, 5120, {129280}, 5), 132);
  ASSERT_EQ(list.choices.size(), 1u);
  EXPECT_EQ(ChoiceText(list.choices[0]), "splits=1");
  EXPECT_EQ(list.pruned[0].choice, "splits=2 and more");
  EXPECT_EQ(list.pruned[0].reason, "partial sums of 129280 outputs, the workspace holds 65536");
}

TEST(Candidates, ManyWavesArePrunedOnSmallCards) {
  const ProductLaunch launch = Launch(5, 4096, {5120, 5120}, 20);
  EXPECT_EQ(SplitsOf(ProductCandidates(launch, 1)), std::set<int>{1});
  EXPECT_GT(SplitsOf(ProductCandidates(launch, 132)).size(), 5u);
}

// The formulas as they were before there was a table.
TEST(Candidates, SafeChoicesAreThoseOfALaunchWithoutATable) {
  EXPECT_EQ(SafeSplits(5120, 16, 132), 16);
  EXPECT_EQ(SafeSplits(5120, 4, 132), 20) << "no part under 256 inputs";
  EXPECT_EQ(SafeSplits(4096, 80, 132), 3);
  EXPECT_EQ(SafeSplits(5120, 505, 132), 1);
  EXPECT_EQ(SafeSplits(20480, 505, 132), 2) << "int32 sums";
  // 5 and 20 rows of 5120 values in lines of three, on an H200 that holds two blocks of 1024.
  const ReduceShape few = SafeReduceShape((25600 + 2) / 3, 264, 132);
  EXPECT_EQ(few.blocks, 67);
  EXPECT_EQ(few.threads, 128);
  const ReduceShape many = SafeReduceShape((102400 + 2) / 3, 264, 132);
  EXPECT_EQ(many.blocks, 134);
  EXPECT_EQ(many.threads, 256);
}

TEST(Candidates, OfAllReducesAreAllResidentOnEveryCard) {
  for (const int multiprocessors : kCards) {
    for (const int64_t words : {1, 4, 25600, 102400, 1 << 20}) {
      const CandidateList list = ReduceCandidates({words}, multiprocessors, multiprocessors);
      ASSERT_FALSE(list.choices.empty()) << words << " on " << multiprocessors;
      for (const Choice& choice : list.choices) {
        const auto& reduce = std::get<ReduceChoice>(choice);
        EXPECT_GE(reduce.blocks, 1);
        EXPECT_LE(reduce.blocks, MostReduceBlocks(multiprocessors, reduce.threads));
        EXPECT_EQ(reduce.threads % 32, 0);
      }
      const Choice safe = SafeChoice({words}, multiprocessors, multiprocessors);
      EXPECT_EQ(std::count(list.choices.begin(), list.choices.end(), safe), 1);
      for (const Pruned& pruned : list.pruned) EXPECT_NE(pruned.reason, "");
    }
  }
}

TEST(Candidates, TheSmallerConfigurationIsFewerPartsOrFewerThreads) {
  EXPECT_TRUE(IsSmaller(ProductChoice{2}, ProductChoice{3}));
  const Choice line = ReduceChoice{PairProtocol::kLine, 8, 256};
  EXPECT_TRUE(IsSmaller(ReduceChoice{PairProtocol::kAck, 8, 128}, line));
  EXPECT_TRUE(IsSmaller(ReduceChoice{PairProtocol::kLine, 16, 128}, line)) << "smaller blocks";
  EXPECT_TRUE(IsSmaller(line, ReduceChoice{PairProtocol::kAck, 8, 256}));
  EXPECT_FALSE(IsSmaller(line, line));
}

}  // namespace
}  // namespace tp2::tuning
