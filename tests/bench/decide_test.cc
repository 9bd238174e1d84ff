// The specification's own decision, from its own numbers.
#include "libcore/bench/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libcore/bench/result.h"

namespace tp2::bench {
namespace {

using testing::HasSubstr;

// REMOTE_ROUND_MS and REMOTE_DRAFT_MS of the specification, and its threshold.
constexpr char kCost[] =
    "round_ms_5: 43.68\nround_ms_4: 41.56\nremote_draft_ms: 4.4\nthreshold_pct: 5\n";

Json StepCell(const char* mode, int requests, int n_out, double step_ms) {
  return {{"mode", mode},
          {"requests", requests},
          {"n_out", n_out},
          {"insert_rows", 6},
          {"step_host_us", {{"p50", step_ms * 1e3}}}};
}

// The whole STEPs over RDMA that the specification measured.
Json SpecificationSteps() {
  Json result = NewResult("step", {});
  result["cells"] = {StepCell("one-card", 1, 5, 3.14), StepCell("one-card", 4, 4, 5.01),
                     StepCell("pair", 1, 5, 2.34), StepCell("pair", 4, 4, 3.67)};
  return result;
}

std::string Refusal(const std::string& yaml) {
  return std::string(ParseCostModel(yaml, "cost.yaml").status().message());
}

TEST(Decide, ReproducesTheSpecificationsArithmetic) {
  const auto cost = ParseCostModel(kCost, "cost.yaml");
  ASSERT_TRUE(cost.ok()) << cost.status();
  const auto decisions = DecideAll(*cost, SpecificationSteps());
  ASSERT_TRUE(decisions.ok()) << decisions.status();
  ASSERT_EQ(decisions->size(), 2u);
  const Decision& one = (*decisions)[0];
  EXPECT_NEAR(one.saved_ms(), 0.80, 1e-9);
  EXPECT_NEAR(*one.one_card_round_ms, 48.1, 0.05);
  EXPECT_NEAR(*one.pair_round_ms, 47.3, 0.05);
  EXPECT_NEAR(*one.more_rounds_pct, 1.7, 0.05);
  EXPECT_NEAR(one.remote_draft_ms, 3.6, 1e-9);  // overpriced by 0.8 ms with one card's price
  EXPECT_FALSE(one.is_worth_it);
  const Decision& four = (*decisions)[1];
  EXPECT_NEAR(four.saved_ms(), 1.34, 1e-9);
  EXPECT_NEAR(*four.more_rounds_pct, 3.0, 0.05);
  EXPECT_FALSE(four.is_worth_it);
}

TEST(Decide, IsWorthItFromTheThresholdOn) {
  const CostModel cost = {
      .round_ms = {{{}, {}, {}, {}, {}, 9.5}}, .remote_draft_ms = 1, .threshold_pct = 5};
  EXPECT_TRUE(Decide(cost, 1, 5, 1.0, 0.5).is_worth_it);  // 10.5 / 10.0
  EXPECT_FALSE(Decide(cost, 1, 5, 1.0, 0.51).is_worth_it);
}

TEST(Decide, DepthWithoutAPriceHasNoVerdict) {
  const CostModel cost = {.round_ms = {{{}, {}, {}, {}, {}, 9.5}}, .remote_draft_ms = 1};
  const Decision decision = Decide(cost, 2, 3, 1.0, 0.5);
  EXPECT_FALSE(decision.more_rounds_pct.has_value());
  EXPECT_FALSE(decision.is_worth_it);
}

TEST(Decide, RefusesWhatIsNoCostModel) {
  EXPECT_THAT(Refusal("threshold_pct: 5\n"), HasSubstr("round_ms_N"));
  EXPECT_THAT(Refusal("round_ms_5: -1\n"), HasSubstr("not negative"));
  EXPECT_THAT(Refusal("round_ms_5: nan\n"), HasSubstr("not negative"));
  EXPECT_THAT(Refusal("round_ms_5: 43,68\n"), HasSubstr("got '43,68'"));
  EXPECT_THAT(Refusal("round_ms_6: 1\n"), HasSubstr("round_ms_6"));
}

TEST(Decide, RefusesResultsWithoutBothModes) {
  const auto cost = ParseCostModel(kCost, "cost.yaml");
  Json result = SpecificationSteps();
  result["cells"].erase(3);
  result["cells"].erase(2);
  EXPECT_THAT(std::string(DecideAll(*cost, result).status().message()),
              HasSubstr("modes one-card and pair"));
  EXPECT_FALSE(DecideAll(*cost, Json::array()).ok());
  result = SpecificationSteps();
  result["cells"][3]["step_host_us"] = nullptr;
  EXPECT_FALSE(DecideAll(*cost, result).ok());
}

}  // namespace
}  // namespace tp2::bench
