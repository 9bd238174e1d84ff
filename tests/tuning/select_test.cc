// The choice among candidates, with scripted times: ties, noise, failures, order, interruption.
#include "libcore/tuning/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/tuning/scripted_stopwatch.h"

namespace tp2::tuning {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const KernelKey kKey = ProductKey{5, 5120, 16, 8};

std::vector<Choice> Splits(std::initializer_list<int> splits) {
  std::vector<Choice> choices;
  for (const int one : splits) choices.push_back(ProductChoice{one});
  return choices;
}

int SplitsOf(const Choice& choice) { return std::get<ProductChoice>(choice).splits; }

// One time per number of parts, without noise.
ScriptedStopwatch Steady(std::map<int, double> us) {
  return ScriptedStopwatch([us](const Choice& choice, int) -> absl::StatusOr<double> {
    return us.at(SplitsOf(choice));
  });
}

KernelEntry Chosen(ScriptedStopwatch stopwatch, const std::vector<Choice>& choices,
                   const SelectOptions& options = {}) {
  const auto selection = Select(stopwatch, kKey, choices, options);
  EXPECT_TRUE(selection.ok()) << selection.status();
  return selection.ok() ? selection->entry : KernelEntry{};
}

TEST(Select, TakesTheFastestAndTellsHowFarTheNextOneIs) {
  const KernelEntry entry =
      Chosen(Steady({{1, 20}, {2, 12}, {4, 10}, {8, 11}}), Splits({1, 2, 4, 8}));
  EXPECT_EQ(SplitsOf(entry.choice), 4);
  EXPECT_EQ(entry.us_p50, 10);
  EXPECT_EQ(SplitsOf(*entry.runner_up), 8);
  EXPECT_EQ(entry.us_gap_pct, 10);
}

TEST(Select, ATieGoesToTheSmallerConfiguration) {
  const KernelEntry entry = Chosen(Steady({{2, 10.09}, {4, 10.05}, {8, 10}}), Splits({2, 4, 8}));
  EXPECT_EQ(SplitsOf(entry.choice), 2);
  EXPECT_EQ(SplitsOf(*entry.runner_up), 8) << "the fastest of the others";
  EXPECT_LT(*entry.us_gap_pct, 0) << "it was faster";
  EXPECT_EQ(SplitsOf(Chosen(Steady({{2, 10.2}, {8, 10}}), Splits({2, 8})).choice), 8)
      << "2 % without noise is no tie";
}

TEST(Select, AGapUnderTheNoiseIsATieAndALargerOneIsNot) {
  // Medians 3 % apart, spread of 10 %: the quartiles overlap.
  const auto noisy = [](double middle, double spread) {
    return [=](int replay) { return middle * (1 + spread * ((replay * 7 % 11) - 5) / 5.0); };
  };
  const auto small = noisy(10.3, 0.1), large = noisy(10, 0.1);
  const ScriptedStopwatch overlapping(
      [=](const Choice& choice, int replay) -> absl::StatusOr<double> {
        return SplitsOf(choice) == 2 ? small(replay) : large(replay);
      });
  EXPECT_EQ(SplitsOf(Chosen(overlapping, Splits({2, 8})).choice), 2);
  // The same noise, but 20 % apart: no amount of spread makes that equal.
  const auto slow = noisy(12, 0.3), fast = noisy(10, 0.3);
  const ScriptedStopwatch apart([=](const Choice& choice, int replay) -> absl::StatusOr<double> {
    return SplitsOf(choice) == 2 ? slow(replay) : fast(replay);
  });
  EXPECT_EQ(SplitsOf(Chosen(apart, Splits({2, 8})).choice), 8);
}

TEST(Select, TimesEveryoneThereAndBackAndDropsTheHopeless) {
  ScriptedStopwatch stopwatch = Steady({{1, 30}, {2, 11}, {4, 10}});
  ASSERT_TRUE(Select(stopwatch, kKey, Splits({1, 2, 4}), {.rounds = 2}).ok());
  EXPECT_THAT(stopwatch.turns,
              ElementsAre("splits=1", "splits=2", "splits=4", "splits=4", "splits=2", "splits=1",
                          "splits=2", "splits=4", "splits=4", "splits=2"));
  EXPECT_EQ(stopwatch.prepare_count, 1) << "all candidates are ready before the first is timed";
}

// Clocks that sink while the candidates are timed: there and back, both lose the same.
TEST(Select, ADriftOfTheClockFavoursNobody) {
  int turn = 0;
  ScriptedStopwatch stopwatch([&turn](const Choice& choice, int) -> absl::StatusOr<double> {
    const double drift = 1 + 0.002 * turn++;
    return (SplitsOf(choice) == 2 ? 10.0 : 10.4) * drift;
  });
  for (const auto& order : {Splits({8, 2}), Splits({2, 8})}) {
    turn = 0;
    const auto selection =
        Select(stopwatch, kKey, order, {.rounds = 3, .replays = 2, .tie_pct = 0});
    ASSERT_TRUE(selection.ok());
    EXPECT_EQ(SplitsOf(selection->entry.choice), 2);
  }
}

// The winner must not depend on who happens to come first.
TEST(Select, TheOrderOfTheCandidatesDecidesNothing) {
  const std::map<int, double> us = {{1, 14}, {2, 10}, {4, 10}, {5, 10}, {8, 9.95}, {16, 10.2}};
  std::vector<Choice> choices = Splits({1, 2, 4, 5, 8, 16});
  const KernelEntry forward = Chosen(Steady(us), choices);
  std::reverse(choices.begin(), choices.end());
  const KernelEntry backward = Chosen(Steady(us), choices);
  EXPECT_EQ(forward.choice, backward.choice);
  EXPECT_EQ(forward.runner_up, backward.runner_up);
  EXPECT_EQ(forward.us_p50, backward.us_p50);
  EXPECT_EQ(forward.us_gap_pct, backward.us_gap_pct);
}

TEST(Select, ACandidateThatTheCardRefusesIsLeftOutWithItsReason) {
  ScriptedStopwatch stopwatch([](const Choice& choice, int replay) -> absl::StatusOr<double> {
    if (SplitsOf(choice) == 4 && replay > 3) return absl::ResourceExhaustedError("no room");
    return 10.0 + SplitsOf(choice);
  });
  const auto selection = Select(stopwatch, kKey, Splits({4, 6, 8}), {.rounds = 2, .replays = 3});
  ASSERT_TRUE(selection.ok()) << selection.status();
  EXPECT_EQ(SplitsOf(selection->entry.choice), 6) << "its early times do not count either";
  EXPECT_EQ(selection->timings[0].failure.message(), "no room");
  EXPECT_EQ(SplitsOf(*selection->entry.runner_up), 8);
}

TEST(Select, ADeviceFaultEndsTheTuning) {
  ScriptedStopwatch stopwatch([](const Choice& choice, int) -> absl::StatusOr<double> {
    if (SplitsOf(choice) == 4) return absl::AbortedError("fault");
    return 10.0;
  });
  EXPECT_EQ(Select(stopwatch, kKey, Splits({2, 4}), {}).status().code(),
            absl::StatusCode::kAborted);
}

TEST(Select, NothingIsChosenWhenNobodyRuns) {
  ScriptedStopwatch stopwatch([](const Choice&, int) -> absl::StatusOr<double> {
    return absl::FailedPreconditionError("refused");
  });
  const auto selection = Select(stopwatch, kKey, Splits({2, 4}), {});
  EXPECT_THAT(std::string(selection.status().message()), HasSubstr("product/K5/k5120/b16/r8"));
}

TEST(Select, AnInterruptEndsItBetweenTwoTurns) {
  ScriptedStopwatch stopwatch = Steady({{2, 10}, {4, 10}});
  const auto selection =
      Select(stopwatch, kKey, Splits({2, 4}),
             {.is_interrupted = [&stopwatch] { return stopwatch.turns.size() == 3; }});
  EXPECT_EQ(selection.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(stopwatch.turns.size(), 3u);
}

TEST(SelectReduces, AllSizesGetTheProtocolWithTheSmallerSum) {
  const std::map<ReduceKey, std::vector<Choice>> candidates = {
      {{25600},
       {ReduceChoice{PairProtocol::kLine, 67, 128}, ReduceChoice{PairProtocol::kAck, 50, 128}}},
      {{102400},
       {ReduceChoice{PairProtocol::kLine, 134, 256}, ReduceChoice{PairProtocol::kAck, 100, 256}}}};
  // Lines lose at the larger size alone.
  const auto us = [](double line_small, double line_large) {
    return ScriptedStopwatch([=](const Choice& choice, int) -> absl::StatusOr<double> {
      const auto& reduce = std::get<ReduceChoice>(choice);
      if (reduce.protocol == PairProtocol::kAck) return reduce.blocks == 50 ? 6.0 : 7.0;
      return reduce.blocks == 67 ? line_small : line_large;
    });
  };
  ScriptedStopwatch better = us(2.5, 8.0), worse = us(2.5, 12.0);
  const auto lines = SelectReduces(better, candidates, {});
  ASSERT_TRUE(lines.ok()) << lines.status();
  for (const auto& [key, entry] : *lines) {
    EXPECT_EQ(std::get<ReduceChoice>(entry.choice).protocol, PairProtocol::kLine);
  }
  const auto acks = SelectReduces(worse, candidates, {});
  ASSERT_TRUE(acks.ok()) << acks.status();
  ASSERT_EQ(acks->size(), 2u);
  for (const auto& [key, entry] : *acks) {
    EXPECT_EQ(std::get<ReduceChoice>(entry.choice).protocol, PairProtocol::kAck);
  }
}

}  // namespace
}  // namespace tp2::tuning
