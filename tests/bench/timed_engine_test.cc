// The instrumented drafter beside the plain one: the same bits, and times where work is.
#include "libcore/bench/timed_engine.h"

#include <gtest/gtest.h>

#include <string>

#include "libcore/parity/self_run.h"
#include "tests/support/temp_model.h"

namespace tp2::bench {
namespace {

TEST(TimedEngine, DraftsTheSameBitsInEveryMode) {
  const TempModel model("tiny");
  for (const char* mode : {"one-card", "solo-0", "solo-1", "emulated"}) {
    const EngineOptions options = {.model_dir = model.dir(), .backend = "cpu", .mode = mode};
    const auto plain = MakeEngine(options);
    ASSERT_TRUE(plain.ok()) << plain.status();
    auto timed = MakeTimedEngine(options);
    ASSERT_TRUE(timed.ok()) << timed.status();
    EXPECT_EQ(RunSelf(*timed->engine, {.rounds = 6})->digest,
              RunSelf(**plain, {.rounds = 6})->digest)
        << mode;
  }
}

TEST(TimedEngine, TimesEveryGroupOfEveryStep) {
  const TempModel model("tiny");
  auto timed = MakeTimedEngine({.model_dir = model.dir(), .backend = "cpu", .mode = "emulated"});
  ASSERT_TRUE(timed.ok()) << timed.status();
  ASSERT_TRUE(FillWindows(*timed->engine).ok());
  const auto groups = RunGroups(*timed, {.requests = 2, .n_out = 3}, {.warmup = 1, .replays = 4});
  ASSERT_TRUE(groups.ok()) << groups.status();
  for (int group = 0; group < kGroupCount; ++group) {
    ASSERT_EQ(groups->ns[group].size(), 4u);
    for (const int64_t ns : groups->ns[group]) {
      // Every norm of a draft is done by the operation before or behind it.
      EXPECT_EQ(ns > 0, group != static_cast<int>(KernelGroup::kNorms)) << kGroupNames[group];
    }
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_LE(groups->sum_ns[i], groups->device_ns[i]);
}

TEST(TimedEngine, CountsTheExpertsThatAStepReads) {
  const TempModel model("tiny");
  const auto engine = MakeEngine({.model_dir = model.dir(), .backend = "cpu"});
  ASSERT_TRUE(engine.ok());
  ASSERT_TRUE(FillWindows(**engine).ok());
  const DrafterConfig& config = (*engine)->info().config;
  const auto one = CountExperts(**engine, {.requests = 1, .n_out = 5}, 3);
  const auto four = CountExperts(**engine, {.requests = 4, .n_out = 5}, 3);
  ASSERT_TRUE(one.ok() && four.ok());
  ASSERT_EQ(one->size(), static_cast<size_t>(config.stages));
  for (int stage = 0; stage < config.stages; ++stage) {
    EXPECT_GE((*one)[stage], config.experts_per_token);
    EXPECT_LE((*four)[stage], config.experts);
    EXPECT_LE((*one)[stage], (*four)[stage]);
  }
}

TEST(TimedEngine, RefusesAModeOfTwoStreams) {
  const TempModel model("tiny");
  const auto timed =
      MakeTimedEngine({.model_dir = model.dir(), .backend = "cpu", .mode = "host-pair"});
  EXPECT_EQ(timed.status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tp2::bench
