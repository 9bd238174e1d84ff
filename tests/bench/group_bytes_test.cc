// Bytes per group of the full-size model, against sums written out by hand from its sizes.
#include "libcore/bench/group_bytes.h"

#include <gtest/gtest.h>

#include <vector>

#include "libcore/model/synthetic_shape.h"
#include "libcore/shard/layout.h"

namespace tp2::bench {
namespace {

const DrafterConfig& Flash() { return FindSyntheticShape("v41-flash")->config; }

FormLookup Mission(const DrafterConfig& config) {
  return [&config](const TensorRule& rule) { return MissionForm(rule, config); };
}

PerGroup<int64_t> OneCard(const StepShape& shape) {
  const std::vector<ShardPlan> plans = *MakePlans(Flash(), 1);
  return GroupBytes(Flash(), plans, Mission(Flash()), shape);
}

int64_t Bytes(PerGroup<int64_t> bytes, KernelGroup group) { return At(bytes, group); }

TEST(GroupBytes, HeadIsItsMatrixOnceAndTheLogitsOfEveryRow) {
  const int64_t matrix = int64_t{5120} * 129280 * 6 / 8 + 2 * (5120 + 129280);
  EXPECT_EQ(Bytes(OneCard({.requests = 1, .n_out = 5}), KernelGroup::kHead),
            matrix + 5 * 4 * (5120 + 129280));
  EXPECT_EQ(Bytes(OneCard({.requests = 4, .n_out = 4}), KernelGroup::kHead),
            matrix + 16 * 4 * (5120 + 129280));
}

TEST(GroupBytes, MarkovReadsItsHeadOncePerDraftedPosition) {
  const int64_t matrix = int64_t{129280} * 256 * 2;
  for (const int n_out : {1, 5}) {
    EXPECT_EQ(Bytes(OneCard({.requests = 2, .n_out = n_out}), KernelGroup::kMarkov),
              n_out * matrix + 2 * n_out * (4 * 129280 + 2 * 256));
  }
}

TEST(GroupBytes, DenseIsFourMatricesPerStage) {
  const auto matrix = [](int64_t k, int64_t n) { return k * n * 5 / 8 + 2 * (k + n); };
  const int64_t weights =
      matrix(5120, 1280) + matrix(1280, 32768) + matrix(5120, 512) + matrix(8192, 5120);
  const int64_t values = 5 * (5120 + 1280 + 1280 + 32768 + 5120 + 512 + 8192 + 2 * 5120);
  EXPECT_EQ(Bytes(OneCard({.requests = 1, .n_out = 5}), KernelGroup::kDense),
            3 * (weights + 4 * values));
}

TEST(GroupBytes, ExpertsCountWhatTheStepReads) {
  const auto matrix = [](int64_t k, int64_t n, int bits) { return k * n * bits / 8 + 2 * (k + n); };
  const int64_t routed = 2 * matrix(5120, 2304, 2) + matrix(2304, 5120, 2);
  const int64_t shared = 2 * matrix(5120, 2304, 5) + matrix(2304, 5120, 5);
  const int64_t values = 5 * (5120 + 2 * 5120) * 4;
  EXPECT_EQ(Bytes(OneCard({.requests = 1, .n_out = 5, .distinct_experts = {10, 12, 14}}),
                  KernelGroup::kExperts),
            36 * routed + 3 * (shared + values));
  EXPECT_EQ(Bytes(OneCard({.requests = 1, .n_out = 5}), KernelGroup::kExperts),
            3 * (shared + values));
}

TEST(GroupBytes, AttentionGrowsWithTheWindow) {
  const auto attention = [](int window_rows) {
    return Bytes(OneCard({.requests = 3, .n_out = 5, .window_rows = window_rows}),
                 KernelGroup::kAttention);
  };
  EXPECT_EQ(attention(128) - attention(0), 3 * 3 * 128 * 512 * 2);
}

TEST(GroupBytes, TwoRanksReadTheHeadOnceTogetherAndRepeatWhatIsReplicated) {
  const std::vector<ShardPlan> plans = *MakePlans(Flash(), 2);
  const StepShape shape = {.requests = 1, .n_out = 5, .window_rows = 128};
  const PerGroup<int64_t> both = GroupBytes(Flash(), plans, Mission(Flash()), shape);
  const PerGroup<int64_t> first =
      GroupBytes(Flash(), std::span(plans).first(1), Mission(Flash()), shape);
  const PerGroup<int64_t> one_card = OneCard(shape);
  // suh (2 bytes per input) and the rows (4 bytes each) are read by both ranks.
  EXPECT_EQ(Bytes(both, KernelGroup::kHead),
            Bytes(one_card, KernelGroup::kHead) + 5120 * 2 + 5 * 5120 * 4);
  EXPECT_EQ(Bytes(both, KernelGroup::kMhc), 2 * Bytes(one_card, KernelGroup::kMhc));
  EXPECT_LT(Bytes(first, KernelGroup::kDense), Bytes(one_card, KernelGroup::kDense));
}

TEST(GroupBytes, EveryGroupOfEveryShapeMovesSomething) {
  for (const char* name : {"tiny", "tiny-v4", "v4-pro"}) {
    const DrafterConfig& config = FindSyntheticShape(name)->config;
    const std::vector<ShardPlan> plans = *MakePlans(config, 1);
    const StepShape shape = {.requests = 1, .n_out = 1, .window_rows = 1};
    for (const int64_t bytes : GroupBytes(config, plans, Mission(config), shape)) {
      EXPECT_GT(bytes, 0) << name;
    }
  }
}

}  // namespace
}  // namespace tp2::bench
