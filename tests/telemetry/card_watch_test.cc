#include "libcore/telemetry/card_watch.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <thread>

#include "tests/support/fake_library.h"

namespace tp2::telemetry {
namespace {

using testing::FakeLibrary;

constexpr int kWaitMs = 20'000;
constexpr int kPeriodMs = 20;

std::string Script(const std::string& rest) {
  return "cards = 1\ncard0.uuid = GPU-c4e7a371-1111-2222-3333-444455556666\n"
         "card0.links = 1\n" +
         rest;
}

// The first state that `wanted` likes. The limit only ends a test that hangs.
WatchedCards WaitFor(const CardWatch& watch,
                     const std::function<bool(const WatchedCards&)>& wanted) {
  for (int waited_ms = 0; waited_ms < kWaitMs; waited_ms += 5) {
    WatchedCards now = watch.Now();
    if (wanted(now)) return now;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "no such state";
  return watch.Now();
}

struct Started {
  std::unique_ptr<CardWatch> watch = {};
  pid_t helper = 0;
};

Started Start(const FakeLibrary& library, int stale_ms) {
  absl::StatusOr<HelperProcess> helper = HelperProcess::Start(library.path());
  EXPECT_TRUE(helper.ok()) << helper.status();
  const auto cards = helper->ReadCards(kWaitMs);
  EXPECT_TRUE(cards.ok()) << cards.status();
  Started started{.helper = helper->pid()};
  auto watch = CardWatch::Start(*std::move(helper), *cards, kPeriodMs, stale_ms);
  EXPECT_TRUE(watch.ok()) << watch.status();
  started.watch = *std::move(watch);
  return started;
}

TEST(CardWatch, FollowsTheCardsAndCountsLinkErrorsSinceItsStart) {
  const FakeLibrary library(Script("card0.power_mw = 1000\ncard0.link0.replay = 7\n"));
  const Started started = Start(library, kWaitMs);
  const WatchedCards first =
      WaitFor(*started.watch, [](const WatchedCards& now) { return now.latest.has_value(); });
  EXPECT_EQ(first.driver, "580.0-fake");
  EXPECT_EQ(first.latest->cards[0].power_mw, 1000u);
  EXPECT_EQ(first.link_errors, (std::vector<std::optional<uint64_t>>{0}));
  EXPECT_FALSE(first.is_stale);
  library.SetScript(Script("card0.power_mw = 3000\ncard0.link0.replay = 9\n"));
  const WatchedCards later =
      WaitFor(*started.watch, [](const WatchedCards& now) { return now.link_errors[0] == 2u; });
  EXPECT_EQ(later.latest->cards[0].power_mw, 3000u);
}

TEST(CardWatch, ACardThatHangsIsStaleAndComesBack) {
  const FakeLibrary library(Script("card0.power_mw = 1000\n"));
  const Started started = Start(library, 200);
  (void)WaitFor(*started.watch, [](const WatchedCards& now) { return now.latest.has_value(); });
  library.SetScript(Script("card0.power_mw = 1000\ncard0.hang_ms = 400\n"));
  const WatchedCards stale =
      WaitFor(*started.watch, [](const WatchedCards& now) { return now.is_stale; });
  EXPECT_GT(stale.age_ms, 200);
  EXPECT_EQ(stale.lost, std::nullopt);
  library.SetScript(Script("card0.power_mw = 2000\n"));
  (void)WaitFor(*started.watch, [](const WatchedCards& now) {
    return !now.is_stale && now.latest->cards[0].power_mw == 2000u;
  });
}

TEST(CardWatch, ADeadHelperIsToldAndTheLastSampleKept) {
  const FakeLibrary library(Script("card0.power_mw = 1000\n"));
  const Started started = Start(library, kWaitMs);
  (void)WaitFor(*started.watch, [](const WatchedCards& now) { return now.latest.has_value(); });
  ::kill(started.helper, SIGKILL);
  const WatchedCards lost =
      WaitFor(*started.watch, [](const WatchedCards& now) { return now.lost.has_value(); });
  EXPECT_TRUE(lost.is_stale);
  EXPECT_EQ(lost.latest->cards[0].power_mw, 1000u);
}

TEST(CardWatch, EndsItsHelperWhileACardHangs) {
  const FakeLibrary library(Script("card0.power_mw = 1000\n"));
  Started started = Start(library, kWaitMs);
  (void)WaitFor(*started.watch, [](const WatchedCards& now) { return now.latest.has_value(); });
  library.SetScript(Script("card0.hang_ms = 60000\n"));
  (void)WaitFor(*started.watch, [](const WatchedCards& now) { return now.age_ms > 5 * kPeriodMs; });
  started.watch.reset();
  EXPECT_NE(::kill(started.helper, 0), 0);
}

}  // namespace
}  // namespace tp2::telemetry
