// A tuning run without a card: scripted times, scripted drafts.
#include "libcore/bench/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "libcore/model/synthetic_shape.h"
#include "tests/tuning/scripted_stopwatch.h"

namespace tp2::bench {
namespace {

using ::testing::HasSubstr;
using tuning::Choice;
using tuning::KernelChoices;
using tuning::KernelKey;
using tuning::ScriptedStopwatch;

const tuning::CardKind kH200 = {"NVIDIA H200", 90, 132};
const tuning::CardKind kRtx3090 = {"NVIDIA GeForce RTX 3090", 86, 82};

LaunchList Launches(const std::vector<int>& tps) {
  const DrafterConfig config = FindSyntheticShape("v41-flash")->config;
  return *ListLaunches(config, tps, MissionForms(config));
}

// Times that depend on the choice alone, many of them equal.
absl::StatusOr<double> Script(const Choice& choice, int) {
  if (const auto* product = std::get_if<tuning::ProductChoice>(&choice)) {
    return 10.0 + std::abs(product->splits - 6) / 3;
  }
  const auto& reduce = std::get<tuning::ReduceChoice>(choice);
  return (reduce.protocol == tuning::PairProtocol::kLine ? 3.0 : 6.0) + reduce.threads / 512;
}

struct TuneRun {
  TuneRequest request;
  std::vector<std::string> calls;
  std::string wrong_digest;  // of the drafts with a table; empty: as without

  explicit TuneRun(const std::vector<int>& tps) {
    request.card = kH200;
    request.launches = Launches(tps);
    request.select.rounds = 1;
    request.select.replays = 1;
  }
  absl::StatusOr<TuneOutcome> Tune(ScriptedStopwatch::Script script = Script) {
    const auto make = [&](const char* name) {
      return [&, name]() -> absl::StatusOr<std::unique_ptr<tuning::Stopwatch>> {
        calls.push_back(name);
        return std::make_unique<ScriptedStopwatch>(script);
      };
    };
    return bench::Tune(request, {.products = make("products"),
                                 .reduces = make("reduces"),
                                 .digest = [&](const std::shared_ptr<KernelChoices>& kernels)
                                     -> absl::StatusOr<std::string> {
                                   calls.push_back(kernels == nullptr ? "without" : "with");
                                   return kernels == nullptr || wrong_digest.empty() ? "bits"
                                                                                     : wrong_digest;
                                 }});
  }
};

TEST(Tune, ChoosesForEveryKeyAndComparesTheDraftsBeforeAndAfter) {
  TuneRun run({1, 2});
  auto outcome = run.Tune();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(run.calls, testing::ElementsAre("without", "products", "reduces", "with"));
  EXPECT_TRUE(outcome->has_equal_digests());
  for (const KernelKey& key : run.request.launches.Keys()) {
    EXPECT_NE(outcome->table.Find(key), nullptr) << tuning::KeyName(key);
  }
  outcome->table.driver = "580";
  const auto read = tuning::ParseKernelTable(outcome->table.ToText(), "t");
  EXPECT_TRUE(read.ok()) << read.status();
}

TEST(Tune, OtherDraftsAreNoticed) {
  TuneRun run({1});
  run.wrong_digest = "other bits";
  const auto outcome = run.Tune();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->has_equal_digests());
}

// Public tuners chose among near-ties by chance; here a second run gives the same file.
TEST(Tune, InvertedCandidatesGiveTheSameTable) {
  TuneRun forward({1, 2}), backward({1, 2});
  backward.request.is_reversed = true;
  const auto a = forward.Tune(), b = backward.Tune();
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->table.ToText(), b->table.ToText());
}

TEST(Tune, OnlyTimesWhatIsNamed) {
  TuneRun run({1, 2});
  run.request.only = "all_reduce";
  const auto outcome = run.Tune();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->table.entries.size(), 4u);
  EXPECT_THAT(run.calls, testing::ElementsAre("without", "reduces", "with"));
  run.request.only = "product/K9";
  EXPECT_THAT(std::string(run.Tune().status().message()),
              HasSubstr("expected a key of this model"));
  EXPECT_TRUE(IsNamed(tuning::ProductKey{6, 5120, 16, 8}, "product/K6"));
  EXPECT_FALSE(IsNamed(tuning::ProductKey{6, 5120, 16, 8}, "product/K6/k51"));
}

TEST(Tune, AFailureOrAnInterruptGivesNoTable) {
  TuneRun run({1});
  const auto faulty = run.Tune([](const Choice& choice, int) -> absl::StatusOr<double> {
    if (std::get<tuning::ProductChoice>(choice).splits == 5) return absl::AbortedError("fault");
    return 10.0;
  });
  EXPECT_EQ(faulty.status().code(), absl::StatusCode::kAborted);
  run.request.select.is_interrupted = [] { return true; };
  EXPECT_EQ(run.Tune().status().code(), absl::StatusCode::kCancelled);
}

TEST(Tune, TellsWhichCandidatesTheCardRefused) {
  TuneRun run({1});
  run.request.only = "product/K5/k5120/b14/r8";
  const auto outcome = run.Tune([](const Choice& choice, int) -> absl::StatusOr<double> {
    if (std::get<tuning::ProductChoice>(choice).splits == 20) {
      return absl::ResourceExhaustedError("no room");
    }
    return 10.0;
  });
  if (outcome.ok()) {
    ASSERT_EQ(outcome->failures.size(), 1u);
    EXPECT_EQ(outcome->failures[0], "product/K5/k5120/b14/r8 splits=20: no room");
  } else {
    ADD_FAILURE() << outcome.status();
  }
}

absl::StatusOr<tuning::KernelTable> CommittedTable(const std::string& name) {
  std::ifstream file(TP2_SOURCE_DIR "/libcore/tuning/tables/" + name);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return tuning::ParseKernelTable(text, name);
}

TEST(CommittedTable, OfTheH200HasEveryProductOfOneCard) {
  const auto table = CommittedTable("sm90_h200.json");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(table->is_measured());
  EXPECT_TRUE(tuning::CheckBuild(*table).ok());
  EXPECT_EQ(table->card.multiprocessors, 132);
  const tuning::KernelTable derived = DerivedTable(Launches({1}), table->card);
  ASSERT_EQ(table->entries.size(), derived.entries.size());
  for (const auto& [key, entry] : derived.entries) {
    EXPECT_NE(table->Find(key), nullptr) << tuning::KeyName(key);
  }
}

// The committed table of the card that nobody has measured: what a launch gets without one.
TEST(DerivedTable, OfTheRtx3090IsTheCommittedOne) {
  const auto committed = CommittedTable("sm86_rtx3090.json");
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_FALSE(committed->is_measured());
  tuning::KernelTable derived = DerivedTable(Launches({1, 2}), kRtx3090);
  derived.build = committed->build;
  EXPECT_EQ(committed->ToText(), derived.ToText());
  EXPECT_TRUE(tuning::CheckBuild(*committed).ok());
}

}  // namespace
}  // namespace tp2::bench
