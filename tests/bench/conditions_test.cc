// What a result says about the machine, with a driver that a script plays.
#include "libcore/bench/conditions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "libcore/bench/result.h"

namespace tp2::bench {
namespace {

constexpr char kUuid[] = "GPU-c4e7a371-0000-0000-0000-000000000000";

// A copy of the fake library with its script beside it.
class FakeDriver {
 public:
  explicit FakeDriver(const std::string& script) : root_(::testing::TempDir() + "tp2_nvml_XXXXXX") {
    EXPECT_NE(::mkdtemp(root_.data()), nullptr);
    std::filesystem::copy_file(TP2_BIN_DIR "/fake_nvml.so", path());
    std::ofstream(path() + ".script") << script;
  }
  ~FakeDriver() { std::filesystem::remove_all(root_); }
  std::string path() const { return root_ + "/fake_nvml.so"; }

 private:
  std::string root_;
};

CardFacts Card() { return {.name = "Fake", .uuid = kUuid, .capability = 90}; }

TEST(Conditions, TakeTheCardsStateAtBothEnds) {
  const FakeDriver driver(
      "cards = 1\ncard0.uuid = GPU-c4e7a371-0000-0000-0000-000000000000\ncard0.name = Fake\n"
      "card0.pci = 00000000:41:00.0\ncard0.power_mw = 80000, 300000\ncard0.sm_mhz = 345, 1980\n"
      "card0.reasons = 1, 4\n");
  Conditions conditions({Card()}, driver.path());
  const Json json = conditions.Finish();
  ASSERT_TRUE(json["nvml"].is_object()) << json.dump(1);
  EXPECT_EQ(json["nvml"]["start"]["cards"][0]["power_mw"], 80000);
  EXPECT_EQ(json["nvml"]["end"]["cards"][0]["power_mw"], 300000);
  EXPECT_EQ(json["nvml"]["start"]["cards"][0]["sm_clock_mhz"], 345);
  EXPECT_EQ(json["nvml"]["end"]["cards"][0]["clock_reasons"], 4);
  EXPECT_EQ(json["card"]["uuid"], kUuid);
  EXPECT_TRUE(json["nvml_error"].is_null());
}

TEST(Conditions, OfAPairCountTheLinkErrorsOfEachRank) {
  constexpr char kOther[] = "GPU-7744b44b-0000-0000-0000-000000000000";
  const FakeDriver driver(
      "cards = 2\ncard0.uuid = GPU-c4e7a371-0000-0000-0000-000000000000\ncard0.name = Fake\n"
      "card0.links = 1\ncard0.link0.replay = 5, 5\ncard0.link0.recovery = 0\n"
      "card0.link0.crc_flit = 0\ncard0.link0.crc_data = 0\n"
      "card1.uuid = GPU-7744b44b-0000-0000-0000-000000000000\ncard1.name = Fake\n"
      "card1.links = 1\ncard1.link0.replay = 5, 7\ncard1.link0.recovery = 0\n"
      "card1.link0.crc_flit = 0, 1\ncard1.link0.crc_data = 0\n");
  // Rank 0 is the driver's second card.
  CardFacts other = Card();
  other.uuid = kOther;
  Conditions conditions(std::vector<CardFacts>{other, Card()}, driver.path());
  const Json json = conditions.Finish();
  ASSERT_TRUE(json["nvml"].is_object()) << json.dump(1);
  EXPECT_EQ(json["card"]["uuid"], kOther);
  EXPECT_EQ(json["cards"][1]["uuid"], kUuid);
  EXPECT_EQ(json["nvml"]["start"]["cards"][0]["uuid"], kOther);
  EXPECT_EQ(json["nvml"]["link_errors"], Json({3, 0}));
}

TEST(Conditions, SayWhyADriverTellsNothing) {
  const FakeDriver other_card(
      "cards = 1\ncard0.uuid = GPU-7744b44b-0000-0000-0000-000000000000\ncard0.name = Fake\n");
  Conditions conditions({Card()}, other_card.path());
  EXPECT_FALSE(conditions.Read().has_value());
  const Json json = conditions.Finish();
  EXPECT_TRUE(json["nvml"].is_null());
  EXPECT_THAT(json["nvml_error"].get<std::string>(), testing::HasSubstr(kUuid));
  Conditions without({Card()}, "/nowhere/libnvidia-ml.so.1");
  EXPECT_TRUE(without.Finish()["nvml_error"].is_string());
}

TEST(Conditions, OfTheCpuNeedNoDriver) {
  Conditions conditions({}, "/nowhere/libnvidia-ml.so.1");
  const Json json = conditions.Finish();
  EXPECT_TRUE(json["card"].is_null());
  EXPECT_TRUE(json["nvml_error"].is_null());
  EXPECT_GT(json["host"]["cpu_threads"].get<int>(), 0);
}

TEST(JudgeCell, ThrottledBeforeNoisyBeforeOk) {
  telemetry::CardSample card;
  card.clock_reasons = 0x4;  // the power cap is a condition, not a refusal
  EXPECT_EQ(JudgeCell({100, 100, 103}, 2, card), CellState::kOk);
  EXPECT_EQ(JudgeCell({100, 104, 90}, 2, card), CellState::kNoisy);
  for (const uint64_t reason : {0x8, 0x20, 0x40, 0x80}) {
    card.clock_reasons = reason;
    EXPECT_EQ(JudgeCell({100, 100, 100}, 2, card), CellState::kThrottled) << reason;
  }
}

TEST(SeriesUs, IsNullForNothingAndMicrosecondsOtherwise) {
  EXPECT_TRUE(SeriesUs({}).is_null());
  const Json series = SeriesUs({3000, 1500, 2000});
  EXPECT_EQ(series["p50"], 2.0);
  EXPECT_EQ(series["min"], 1.5);
  EXPECT_EQ(series["max"], 3.0);
  EXPECT_EQ(series["count"], 3);
  EXPECT_EQ(series["mad"], 0.5);
}

TEST(ClockReasonNames, NamesEveryBit) {
  EXPECT_EQ(ClockReasonNames(0), "none");
  EXPECT_EQ(ClockReasonNames(0x24), "sw_power_cap,sw_thermal");
}

}  // namespace
}  // namespace tp2::bench
