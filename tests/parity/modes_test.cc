// Every mode with real collectives is one set of bits. Names carry "Thread": host-pair runs two.
#include "libcore/drafter/modes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

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
              HasSubstr("expected one-card, solo-0, solo-1, emulated, host-pair, pair, got pear"));
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

// A host-pair drafter whose pair the test can reach.
struct PairDrafter {
  explicit PairDrafter(const TempModel& model, const coll::LatchOptions& options = {}) {
    auto checkpoint = Checkpoint::Open(model.dir());
    EXPECT_TRUE(checkpoint.ok());
    std::vector<ShardPlan> plans;
    for (const int rank : {0, 1}) plans.push_back(*MakeShardPlan((*checkpoint)->config(), 2, rank));
    EngineInfo info = CpuEngineInfo(**checkpoint, plans, {.mode = "host-pair"});
    auto pair_ops = std::make_unique<HostPairOps>(info.config, 2, 1, options);
    ops = pair_ops.get();
    drafter.emplace(std::move(info), std::move(*checkpoint), std::move(pair_ops), plans);
  }

  HostPairOps* ops = nullptr;
  std::optional<Drafter<HostPairOps>> drafter;
};

// A use after free, for the sanitizers to see: work queued at construction wrote into memory that
// was already gone.
TEST(ModesThread, DrafterThatNeverDraftedWaitsForQueuedWorkBeforeItsMemoryGoes) {
  const TempModel model("tiny");
  for (int i = 0; i < 3; ++i) {
    const PairDrafter pair(model);
    EXPECT_TRUE(pair.drafter->is_healthy());
  }
}

// A workload's first round, its slots reset.
WorkloadRound FirstRound(Workload& workload, StepEngine& engine) {
  WorkloadRound round = workload.Next();
  for (const WorkloadRound::Reset& reset : round.resets) {
    EXPECT_TRUE(engine.ResetSlot(reset.slot, reset.base).ok());
  }
  return round;
}

// A cancelled STEP fails loudly; after it the pair drafts the same bits as before.
TEST(ModesThread, HostPairRecoversFromACancelledStepWithTheSameBits) {
  const TempModel model("tiny");
  PairDrafter pair(model);
  const auto before = RunSelf(*pair.drafter, {.rounds = 4, .seed = 3});
  ASSERT_TRUE(before.ok()) << before.status();

  Workload workload(pair.drafter->info().config, 4096, 9);
  const WorkloadRound round = FirstRound(workload, *pair.drafter);
  pair.ops->pair().Cancel();
  const auto cancelled = pair.drafter->Step({.entries = round.entries, .n_out = 5});
  EXPECT_EQ(cancelled.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(cancelled.status().message()), HasSubstr("cancelled"));
  EXPECT_TRUE(pair.drafter->is_healthy());

  const auto after = RunSelf(*pair.drafter, {.rounds = 4, .seed = 3});
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->digest, before->digest);
}

// More resets than there are generations, most of them in the middle of a STEP.
TEST(ModesThread, HostPairThatRunsOutOfEpochsResetsInTimeWithTheSameBits) {
  const TempModel model("tiny");
  PairDrafter whole(model);
  PairDrafter short_lived(model, {.max_epoch = 9, .reset_after = 7});
  const auto expected = RunSelf(*whole.drafter, {.rounds = 24, .seed = 3});
  const auto digest = RunSelf(*short_lived.drafter, {.rounds = 24, .seed = 3});
  ASSERT_TRUE(expected.ok() && digest.ok()) << digest.status();
  EXPECT_EQ(digest->digest, expected->digest);
}

TEST(ModesThread, PoisonedHostPairRefusesEverything) {
  const TempModel model("tiny");
  PairDrafter pair(model);
  Workload workload(pair.drafter->info().config, 4096, 9);
  const WorkloadRound round = FirstRound(workload, *pair.drafter);
  ASSERT_TRUE(pair.drafter->Step({.entries = round.entries, .n_out = 1}).ok());
  EXPECT_FALSE(pair.ops->latch().NoteDeviceError(absl::InternalError("a lost device")).ok());
  EXPECT_FALSE(pair.drafter->is_healthy());
  EXPECT_EQ(pair.drafter->Step({.entries = round.entries, .n_out = 1}).status().code(),
            absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace tp2
