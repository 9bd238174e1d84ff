#include "libcore/telemetry/totals.h"

#include <gtest/gtest.h>

#include "libcore/telemetry/stale_watch.h"

namespace tp2::telemetry {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

CardSample Card(uint64_t power_mw, uint64_t reasons, uint64_t replay) {
  CardSample card{.uuid = "GPU-1"};
  card.power_mw = power_mw;
  card.clock_reasons = reasons;
  card.links = {{.link = 0, .is_active = true, .replay = replay, .recovery = 3}};
  return card;
}

TEST(CardTotals, SharesOfTimeFollowTheReasonThatWasInForce) {
  CardTotals totals;
  totals.Add(Card(1, 0x4, 0), 0);
  totals.Add(Card(1, 0x0, 0), 3 * kSecond);
  totals.Add(Card(1, 0x4, 0), 4 * kSecond);
  EXPECT_DOUBLE_EQ(totals.ToJson()["clock_reason_share"]["sw_power_cap"], 0.75);
  EXPECT_DOUBLE_EQ(totals.ToJson()["clock_reason_share"]["hw_thermal"], 0.0);
}

TEST(CardTotals, CountersAreDifferencesAndAResetCountsAsGrowth) {
  CardTotals totals;
  totals.Add(Card(1, 0, 10), 0);
  totals.Add(Card(1, 0, 14), kSecond);
  EXPECT_EQ(totals.LinkErrors(), 4u);
  totals.Add(Card(1, 0, 2), 2 * kSecond);
  EXPECT_EQ(totals.LinkErrors(), 2u);
}

TEST(CardTotals, ACardWithoutCountersHasNoErrorsToReport) {
  CardTotals totals;
  CardSample card = Card(1, 0, 0);
  card.links = {{.link = 0, .is_active = true}};
  totals.Add(card, 0);
  totals.Add(card, kSecond);
  EXPECT_EQ(totals.LinkErrors(), std::nullopt);
  EXPECT_TRUE(totals.ToJson()["link_errors"].is_null());
}

TEST(CardTotals, LinksOutrankTotalsThatStayAtZero) {
  CardTotals totals;
  CardSample card = Card(1, 0, 0);
  card.link_totals = LinkSample{.replay = 0, .recovery = 0};
  totals.Add(card, 0);
  card.links[0].replay = 7;
  totals.Add(card, kSecond);
  EXPECT_EQ(totals.LinkErrors(), 7u);
}

TEST(CardTotals, TotalsCountWhereLinksDoNot) {
  CardTotals totals;
  CardSample card{.uuid = "GPU-1"};
  card.links = {{.link = 0, .is_active = true}};
  card.link_totals = LinkSample{.replay = 2, .crc_data = 1};
  totals.Add(card, 0);
  card.link_totals = LinkSample{.replay = 4, .crc_data = 4};
  totals.Add(card, kSecond);
  EXPECT_EQ(totals.LinkErrors(), 5u);
}

TEST(CardTotals, AFailedReadingEndsNeitherMaximaNorDifferences) {
  CardTotals totals;
  totals.Add(Card(351'000, 0, 1), 0);
  totals.Add({.uuid = "GPU-1", .error = "lost"}, kSecond);
  totals.Add(Card(100'000, 0, 2), 2 * kSecond);
  EXPECT_EQ(totals.PowerMaxMw(), 351'000u);
  EXPECT_EQ(totals.LinkErrors(), 1u);
  EXPECT_EQ(totals.ToJson()["failed_readings"], 1);
}

TEST(RunTotals, PeakIsOfTheSumInOneSample) {
  RunTotals totals;
  totals.Add({.boot_ns = 0, .cards = {Card(300, 0, 0), Card(100, 0, 0)}});
  totals.Add({.boot_ns = 1, .cards = {Card(100, 0, 0), Card(290, 0, 0)}});
  EXPECT_EQ(totals.power_sum_max_mw(), 400u);
  EXPECT_EQ(totals.sample_count(), 2);
}

TEST(SampleJson, ComesBackEqualWithAbsentValuesAbsent) {
  Sample sample{.boot_ns = 5, .wall_utc = "now", .cards = {Card(7, 0x24, 9)}};
  sample.cards[0].processes = {{.pid = 12, .used_bytes = 34}, {.pid = 13}};
  const auto back = SampleFromJson(ToJson(sample));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToJson(*back), ToJson(sample));
  EXPECT_FALSE(back->cards[0].temperature_c.has_value());
}

TEST(SampleJson, RefusesNonsense) {
  for (const char* text :
       {"3", "{}", R"({"boot_ns":1,"wall_utc":"a","cards":[3]})",
        R"({"boot_ns":"1","wall_utc":"a","cards":[]})",
        R"({"boot_ns":1,"wall_utc":"a","cards":{}})",
        R"({"boot_ns":1,"wall_utc":"a","cards":[{"uuid":"x"}]})",
        R"({"boot_ns":1,"wall_utc":"a","cards":[{"uuid":"x","links":[{"link":-1}]}]})",
        R"({"boot_ns":1,"wall_utc":"a","cards":[{"uuid":"x","links":[],"processes":[4]}]})"}) {
    EXPECT_FALSE(SampleFromJson(Json::parse(text)).ok()) << text;
  }
}

TEST(StaleWatch, TellsOncePerStopAndOncePerReturn) {
  StaleWatch watch(5 * kSecond, 0);
  EXPECT_FALSE(watch.Check(5 * kSecond - 1));
  EXPECT_TRUE(watch.Check(5 * kSecond));
  EXPECT_FALSE(watch.Check(6 * kSecond));
  EXPECT_TRUE(watch.Arrived(7 * kSecond));
  EXPECT_FALSE(watch.Arrived(8 * kSecond));
  EXPECT_FALSE(watch.Check(12 * kSecond));
  EXPECT_TRUE(watch.Check(13 * kSecond));
}

}  // namespace
}  // namespace tp2::telemetry
