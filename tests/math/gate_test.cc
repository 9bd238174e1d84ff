// Expert choice and the order of scored tokens.
#include <gtest/gtest.h>

#include <vector>

#include "libcore/math/argmax.h"
#include "libcore/math/gate.h"

namespace tp2 {
namespace {

TEST(Gate, BiasSelectsButDoesNotWeigh) {
  const std::vector<float> affinity = {1.0f, 2.0f, 3.0f, 4.0f};
  const std::vector<float> bias = {10.0f, 0.0f, 0.0f, 0.0f};
  const GateChoice choice = ChooseExperts(affinity.data(), bias.data(), 4, 2, 1.5f);
  EXPECT_EQ(choice.experts[0], 0);
  EXPECT_EQ(choice.experts[1], 3);
  EXPECT_FLOAT_EQ(choice.weights[0], 1.0f / 5.0f * 1.5f);
  EXPECT_FLOAT_EQ(choice.weights[1], 4.0f / 5.0f * 1.5f);
}

TEST(Gate, TiesGoToTheLowerExpert) {
  const std::vector<float> affinity = {1.0f, 2.0f, 2.0f, 2.0f, 1.0f};
  const std::vector<float> bias(5, 0.0f);
  const GateChoice choice = ChooseExperts(affinity.data(), bias.data(), 5, 4, 1.0f);
  EXPECT_EQ(std::vector<int>(choice.experts, choice.experts + 4), (std::vector<int>{1, 2, 3, 0}));
}

TEST(Gate, AllZeroAffinitiesGiveZeroWeightsNotNan) {
  const std::vector<float> zeros(4, 0.0f);
  const GateChoice choice = ChooseExperts(zeros.data(), zeros.data(), 4, 2, 1.5f);
  EXPECT_EQ(choice.weights[0], 0.0f);
  EXPECT_EQ(choice.weights[1], 0.0f);
}

TEST(Argmax, TiesGoToTheLowerTokenInAnyOrder) {
  TopTwo best = {kNoScore, kNoScore};
  for (const Scored candidate :
       {Scored{1.0f, 9}, Scored{2.0f, 7}, Scored{2.0f, 3}, Scored{0.0f, 1}}) {
    Take(best, candidate);
  }
  EXPECT_EQ(best.first.token, 3);
  EXPECT_EQ(best.second.token, 7);
}

TEST(Argmax, MergeFindsBothOfOneHalf) {
  const TopTwo low = {{5.0f, 1}, {4.0f, 2}};
  const TopTwo high = {{3.0f, 100}, {2.0f, 101}};
  for (const TopTwo& merged : {Merge(low, high), Merge(high, low)}) {
    EXPECT_EQ(merged.first.token, 1);
    EXPECT_EQ(merged.second.token, 2);
  }
}

TEST(Argmax, MergeOfATieAcrossHalvesHasMarginZero) {
  const TopTwo low = {{5.0f, 1}, {4.0f, 2}};
  const TopTwo high = {{5.0f, 100}, {4.5f, 101}};
  for (const TopTwo& merged : {Merge(low, high), Merge(high, low)}) {
    EXPECT_EQ(merged.first.token, 1);
    EXPECT_EQ(merged.second.token, 100);
    EXPECT_EQ(merged.first.score - merged.second.score, 0.0f);
  }
}

}  // namespace
}  // namespace tp2
