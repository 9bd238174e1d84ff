#include "libcore/server/card_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tp2::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

telemetry::WatchedCards TwoCards() {
  telemetry::WatchedCards now{
      .driver = "580.0",
      .cards = {{.uuid = "GPU-a", .name = "Card <1>"}, {.uuid = "GPU-b", .name = "Card 2"}},
      .age_ms = 250};
  now.latest = telemetry::Sample{.cards = {{.uuid = "GPU-a",
                                            .power_mw = 351500,
                                            .sm_clock_mhz = 1965,
                                            .clock_reasons = 0x4,
                                            .gpu_utilization_pct = 97,
                                            .links = {{.link = 3, .is_active = true, .replay = 5}}},
                                           {.uuid = "GPU-b", .error = "the GPU is lost"}}};
  now.link_errors = {2, std::nullopt};
  return now;
}

TEST(CardPages, MetricsHaveBaseUnitsAndNoLineForWhatIsAbsent) {
  const std::string text = CardMetricsText(TwoCards());
  EXPECT_THAT(text, HasSubstr("dspark_card_power_watts{rank=\"0\",card=\"GPU-a\"} 351.5\n"));
  EXPECT_THAT(text,
              HasSubstr("dspark_card_sm_clock_hertz{rank=\"0\",card=\"GPU-a\"} 1965000000\n"));
  EXPECT_THAT(text, HasSubstr("dspark_card_utilization_ratio{rank=\"0\",card=\"GPU-a\"} 0.97\n"));
  EXPECT_THAT(text, HasSubstr("reason=\"sw_power_cap\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("reason=\"hw_thermal\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("dspark_card_link_errors_total{rank=\"0\",card=\"GPU-a\",link=\"3\","
                              "kind=\"replay\"} 5\n"));
  EXPECT_THAT(text, Not(HasSubstr("kind=\"recovery\"")));
  EXPECT_THAT(text, Not(HasSubstr("dspark_card_temperature_celsius")));
  EXPECT_THAT(text, HasSubstr("dspark_card_sample_age_seconds 0.25\n"));
}

TEST(CardPages, ALostCardIsDownAndHasNoValues) {
  const std::string text = CardMetricsText(TwoCards());
  EXPECT_THAT(text, HasSubstr("dspark_card_up{rank=\"0\",card=\"GPU-a\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("dspark_card_up{rank=\"1\",card=\"GPU-b\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("dspark_card_power_watts{rank=\"1\"")));
}

TEST(CardPages, AStaleSampleGivesNoValues) {
  telemetry::WatchedCards now = TwoCards();
  now.is_stale = true;
  const std::string text = CardMetricsText(now);
  EXPECT_THAT(text, HasSubstr("dspark_card_up{rank=\"0\",card=\"GPU-a\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("dspark_card_power_watts")));
  EXPECT_THAT(CardTable(now), HasSubstr("does not answer"));
}

TEST(CardPages, BeforeTheFirstSampleEveryCardIsDown) {
  telemetry::WatchedCards now = TwoCards();
  now.latest.reset();
  now.link_errors.clear();
  EXPECT_THAT(CardMetricsText(now), HasSubstr("dspark_card_up{rank=\"0\",card=\"GPU-a\"} 0\n"));
  EXPECT_TRUE(CardStatusJson(now)["cards"][0]["sample"].is_null());
}

TEST(CardPages, StatusHasTheWholeSampleAndTheErrorsSinceTheStart) {
  const Json json = CardStatusJson(TwoCards());
  EXPECT_EQ(json["driver"], "580.0");
  EXPECT_EQ(json["cards"][0]["uuid"], "GPU-a");
  EXPECT_EQ(json["cards"][0]["sample"]["power_mw"], 351500);
  EXPECT_EQ(json["cards"][0]["link_errors"], 2);
  EXPECT_EQ(json["cards"][1]["sample"]["error"], "the GPU is lost");
  EXPECT_TRUE(json["cards"][1]["link_errors"].is_null());
}

TEST(CardPages, ThePageShowsNamesAsText) {
  EXPECT_THAT(CardTable(TwoCards()), HasSubstr("Card &lt;1&gt; GPU-a"));
}

}  // namespace
}  // namespace tp2::server
