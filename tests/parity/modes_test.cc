// Every mode with real collectives is one set of bits. Names carry "Thread": host-pair runs two.
#include "libcore/drafter/modes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libcore/drafter/cpu_drafter-inl.h"
#include "libcore/drafter/host_pair_ops.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/self_run.h"
#include "libcore/parity/workload.h"
#include "tests/support/temp_model.h"

namespace tp2 {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<SelfRunResult> SelfRun(const TempModel& model, const std::string& mode, int rounds) {
  const auto engine =
      MakeEngine({.model_dir = model.dir(), .backend = "cpu", .mode = mode, .thread_count = 2});
  if (!engine.ok()) return engine.status();
  EXPECT_EQ((*engine)->info().mode, mode);
  return RunSelf(**engine, {.rounds = rounds, .seed = 7});
}

TEST(ModesThread, OneCardEmulatedAndHostPairAreOneSetOfBits) {
  for (const char* shape : {"tiny", "tiny-v4", "tiny-mixed"}) {
    const TempModel model(shape);
    const auto one_card = SelfRun(model, "one-card", 24);
    ASSERT_TRUE(one_card.ok()) << one_card.status();
    for (const char* mode : {"emulated", "host-pair"}) {
      const auto other = SelfRun(model, mode, 24);
      ASSERT_TRUE(other.ok()) << other.status();
      EXPECT_EQ(other->digest, one_card->digest) << shape << " " << mode;
    }
  }
}

TEST(ModesThread, SoloRanksRunAloneAndTheirDraftsAreNotThePairs) {
  const TempModel model("tiny");
  const auto one_card = SelfRun(model, "one-card", 6);
  for (const char* mode : {"solo-0", "solo-1"}) {
    const auto solo = SelfRun(model, mode, 6);
    ASSERT_TRUE(solo.ok()) << solo.status();
    EXPECT_EQ(solo->rounds, 6);
    EXPECT_NE(solo->digest, one_card->digest);
    EXPECT_FALSE(FindMode(mode)->has_real_bits);
  }
}

TEST(Modes, UnknownModeIsRefusedWithTheNamesThereAre) {
  EXPECT_THAT(std::string(FindMode("pear").status().message()),
              HasSubstr("expected one-card, solo-0, solo-1, emulated, host-pair, got pear"));
}

// Every number of requests and drafts, with and without margins, in every mode that drafts.
TEST(ModesThread, GridHasOneDigestAndPlainDraftsAreTheSame) {
  const TempModel model("tiny");
  uint64_t expected = 0;
  for (const char* mode : {"one-card", "emulated", "host-pair"}) {
    const auto engine = MakeEngine({.model_dir = model.dir(), .backend = "cpu", .mode = mode});
    ASSERT_TRUE(engine.ok()) << engine.status();
    const auto grid = RunGrid(**engine, {.seed = 4});
    ASSERT_TRUE(grid.ok()) << grid.status();
    EXPECT_EQ(grid->rounds, 40);
    EXPECT_EQ(grid->plain_differences, 0) << mode;
    if (expected == 0) expected = grid->digest;
    EXPECT_EQ(grid->digest, expected) << mode;
  }
}

// A cancelled STEP fails loudly; after it the pair drafts the same bits as before.
TEST(ModesThread, HostPairRecoversFromACancelledStepWithTheSameBits) {
  const TempModel model("tiny");
  auto checkpoint = Checkpoint::Open(model.dir());
  ASSERT_TRUE(checkpoint.ok());
  std::vector<ShardPlan> plans;
  for (const int rank : {0, 1}) plans.push_back(*MakeShardPlan((*checkpoint)->config(), 2, rank));
  EngineInfo info = CpuEngineInfo(**checkpoint, plans, {.mode = "host-pair"});
  auto ops = std::make_unique<HostPairOps>(info.config, 2, 1);
  HostPairOps& pair_ops = *ops;
  Drafter<HostPairOps> drafter(std::move(info), std::move(*checkpoint), std::move(ops), plans);
  const auto before = RunSelf(drafter, {.rounds = 4, .seed = 3});
  ASSERT_TRUE(before.ok()) << before.status();

  Workload workload(drafter.info().config, 4096, 9);
  const WorkloadRound round = workload.Next();
  for (const WorkloadRound::Reset& reset : round.resets) {
    ASSERT_TRUE(drafter.ResetSlot(reset.slot, reset.base).ok());
  }
  pair_ops.pair().Cancel();
  const auto cancelled = drafter.Step({.entries = round.entries, .n_out = 5});
  EXPECT_EQ(cancelled.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(cancelled.status().message()), HasSubstr("cancelled"));
  EXPECT_TRUE(drafter.is_healthy());

  const auto after = RunSelf(drafter, {.rounds = 4, .seed = 3});
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->digest, before->digest);
}

TEST(ModesThread, PoisonedHostPairRefusesEverything) {
  const TempModel model("tiny");
  auto checkpoint = Checkpoint::Open(model.dir());
  ASSERT_TRUE(checkpoint.ok());
  std::vector<ShardPlan> plans;
  for (const int rank : {0, 1}) plans.push_back(*MakeShardPlan((*checkpoint)->config(), 2, rank));
  EngineInfo info = CpuEngineInfo(**checkpoint, plans, {.mode = "host-pair"});
  auto ops = std::make_unique<HostPairOps>(info.config, 2, 1);
  HostPairOps& pair_ops = *ops;
  Drafter<HostPairOps> drafter(std::move(info), std::move(*checkpoint), std::move(ops), plans);
  Workload workload(drafter.info().config, 4096, 9);
  const WorkloadRound round = workload.Next();
  for (const WorkloadRound::Reset& reset : round.resets) {
    ASSERT_TRUE(drafter.ResetSlot(reset.slot, reset.base).ok());
  }
  ASSERT_TRUE(drafter.Step({.entries = round.entries, .n_out = 1}).ok());
  EXPECT_FALSE(pair_ops.latch().NoteDeviceError(absl::InternalError("a lost device")).ok());
  EXPECT_FALSE(drafter.is_healthy());
  EXPECT_EQ(drafter.Step({.entries = round.entries, .n_out = 1}).status().code(),
            absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace tp2
