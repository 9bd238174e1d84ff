// The instrumented drafter on a card: the CPU's bits, and every replay's own times.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "libcore/bench/timed_engine.h"
#include "libcore/parity/self_run.h"
#include "tests/gpu/op_pair.h"

namespace tp2::bench {
namespace {

TEST(TimedEngineGpuTest, DraftsTheCpusBitsWithAndWithoutGraphs) {
  TP2_NEEDS_GPU();
  for (const char* mode : {"one-card", "solo-1", "emulated"}) {
    EngineOptions options = {.model_dir = SyntheticFolder("tiny"), .backend = "cpu", .mode = mode};
    const auto cpu = MakeEngine(options);
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    const uint64_t expected = RunSelf(**cpu, {.rounds = 8})->digest;
    options.backend = "cuda";
    for (const bool uses_graphs : {true, false}) {
      options.uses_graphs = uses_graphs;
      auto timed = MakeTimedEngine(options);
      ASSERT_TRUE(timed.ok()) << timed.status();
      EXPECT_EQ(RunSelf(*timed->engine, {.rounds = 8})->digest, expected) << mode << uses_graphs;
    }
  }
}

TEST(TimedEngineGpuTest, EveryReplayLeavesItsOwnTimesInEveryGroup) {
  TP2_NEEDS_GPU();
  auto timed = MakeTimedEngine(
      {.model_dir = SyntheticFolder("medium"), .backend = "cuda", .mode = "emulated"});
  ASSERT_TRUE(timed.ok()) << timed.status();
  for (const GraphSize& size : timed->engine->GraphSizes()) {
    EXPECT_EQ(size.events > 0, size.key.kind == GraphKey::Kind::kDraft) << size.key.Name();
  }
  ASSERT_TRUE(FillWindows(*timed->engine).ok());
  const auto groups = RunGroups(*timed, {.requests = 4, .n_out = 5}, {.warmup = 2, .replays = 50});
  ASSERT_TRUE(groups.ok()) << groups.status();
  for (int group = 0; group < kGroupCount; ++group) {
    // Every norm of a draft is done by the operation before or behind it.
    EXPECT_EQ(*std::max_element(groups->ns[group].begin(), groups->ns[group].end()) > 0,
              group != static_cast<int>(KernelGroup::kNorms))
        << kGroupNames[group];
  }
  // The borders lie between the STEP's own events; the clock counts in half microseconds.
  for (size_t i = 0; i < groups->sum_ns.size(); ++i) {
    EXPECT_LE(groups->sum_ns[i], groups->device_ns[i] + 1000);
  }
  EXPECT_NE(*std::min_element(groups->sum_ns.begin(), groups->sum_ns.end()),
            *std::max_element(groups->sum_ns.begin(), groups->sum_ns.end()));
}

}  // namespace
}  // namespace tp2::bench
