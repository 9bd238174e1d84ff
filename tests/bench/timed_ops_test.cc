// Times per group: a body's marks; and the anchors.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <set>

#include "libcore/bench/anchors.h"
#include "libcore/bench/group_clock.h"

namespace tp2::bench {
namespace {

const GraphKey kKey = GraphKey::Draft(1, 5, true);

TEST(HostGroupClock, GivesEachGroupTheTimeUntilTheNextMark) {
  const auto clock = std::make_shared<FakeClock>();
  HostGroupClock groups(clock);
  groups.Begin(kKey);
  clock->AdvanceNs(1000);  // before the first operation: nobody's
  groups.Mark(KernelGroup::kMhc);
  clock->AdvanceNs(10);
  groups.Mark(KernelGroup::kDense);
  clock->AdvanceNs(20);
  groups.Mark(KernelGroup::kMhc);
  clock->AdvanceNs(5);
  groups.End();
  auto times = groups.Read(kKey);
  ASSERT_TRUE(times.ok());
  EXPECT_EQ(At(times->ns, KernelGroup::kMhc), 15);
  EXPECT_EQ(At(times->ns, KernelGroup::kDense), 20);
  EXPECT_EQ(std::accumulate(times->ns.begin(), times->ns.end(), int64_t{0}), 35);
  EXPECT_EQ(times->mark_count, 4);
}

TEST(HostGroupClock, KeepsTheLatestRunOfEachKey) {
  const auto clock = std::make_shared<FakeClock>();
  HostGroupClock groups(clock);
  for (const int run : {1, 2}) {
    groups.Begin(kKey);
    groups.Mark(KernelGroup::kHead);
    clock->AdvanceNs(100 * run);
    groups.End();
  }
  EXPECT_EQ(At(groups.Read(kKey)->ns, KernelGroup::kHead), 200);
  EXPECT_FALSE(groups.Read(GraphKey::Draft(2, 5, true)).ok());
}

TEST(AnchorTokens, RepeatLikeProseAndFitEveryVocabulary) {
  std::set<int32_t> distinct;
  for (const int32_t token : AnchorTokens()) {
    EXPECT_GE(token, 0);
    EXPECT_LT(token, 129280);
    distinct.insert(token);
  }
  EXPECT_EQ(AnchorTokens().size(), 441u);
  EXPECT_EQ(distinct.size(), 224u);
  EXPECT_EQ(AnchorAt(441, 129280), AnchorTokens()[0]);
  for (int64_t i = 0; i < 441; ++i) EXPECT_LT(AnchorAt(i, 1280), 1280);
}

}  // namespace
}  // namespace tp2::bench
