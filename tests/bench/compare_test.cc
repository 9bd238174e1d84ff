// Two results: what counts as slower, and what may not be compared.
#include "libcore/bench/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "libcore/bench/result.h"

namespace tp2::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Json Cell(const std::string& id, double p50_us, double mad_us) {
  return {{"cell", id},
          {"primary", "draft_device_us"},
          {"draft_device_us", {{"p50", p50_us}, {"mad", mad_us}}}};
}

Json Result(const std::vector<Json>& cells) {
  Json result = NewResult("one-card", {});
  result["complete"] = true;
  result["backend"] = "cuda";
  result["conditions"] = {{"card", {{"name", "NVIDIA H200"}}}};
  result["model"] = {{"identity", "55c6"}, {"numerics_version", 1}};
  result["measurement"] = {{"cold_l2", false}, {"eager", false}, {"margins", false}};
  result["cells"] = cells;
  return result;
}

std::string Refusal(const Json& before, const Json& after, bool goes_across = false) {
  const auto compared = CompareResults(before, after, {.goes_across = goes_across});
  return std::string(compared.status().message());
}

TEST(CompareResults, ARegressionIsBeyondBothTheLimitAndTheNoise) {
  const Json before = Result({Cell("a", 1000, 1), Cell("b", 1000, 20), Cell("c", 1000, 1)});
  const Json after = Result({Cell("a", 1031, 1), Cell("b", 1059, 5), Cell("c", 1030, 1)});
  const auto compared = CompareResults(before, after, {.max_regression_pct = 3});
  ASSERT_TRUE(compared.ok()) << compared.status();
  ASSERT_EQ(compared->cells.size(), 3u);
  EXPECT_TRUE(compared->cells[0].is_regression);
  EXPECT_FALSE(compared->cells[1].is_regression) << "within 3 x 20 us of noise";
  EXPECT_FALSE(compared->cells[2].is_regression) << "3 percent are allowed";
  EXPECT_TRUE(compared->has_regression());
  EXPECT_DOUBLE_EQ(compared->cells[0].ratio(), 1.031);
}

TEST(CompareResults, FasterIsNoRegression) {
  const auto compared =
      CompareResults(Result({Cell("a", 1000, 1)}), Result({Cell("a", 500, 1)}), {});
  ASSERT_TRUE(compared.ok());
  EXPECT_FALSE(compared->has_regression());
}

TEST(CompareResults, RefusesOtherConditionsAndNamesEach) {
  const Json before = Result({Cell("a", 1000, 1)});
  struct Change {
    const char* pointer;
    Json value;
    const char* says;
  };
  const Change changes[] = {
      {"/command", "emulated", "command: one-card, emulated"},
      {"/backend", "cpu", "backend: cuda, cpu"},
      {"/conditions/card/name", "NVIDIA L4", "card: NVIDIA H200, NVIDIA L4"},
      {"/model/identity", "77", "model: 55c6, 77"},
      {"/model/numerics_version", 2, "numerics version: 1, 2"},
      {"/measurement/cold_l2", true, "cold L2: false, true"},
      {"/measurement/eager", true, "eager: false, true"},
      {"/measurement/margins", true, "margins: false, true"},
  };
  for (const Change& change : changes) {
    Json after = before;
    after[Json::json_pointer(change.pointer)] = change.value;
    EXPECT_THAT(Refusal(before, after), HasSubstr(change.says));
    EXPECT_EQ(Refusal(before, after, /*goes_across=*/true), "") << change.pointer;
  }
}

TEST(CompareResults, RefusesOtherCellsUnlessToldAndThenNamesThem) {
  const Json before = Result({Cell("a", 1000, 1), Cell("b", 1000, 1)});
  const Json after = Result({Cell("b", 1000, 1), Cell("c", 1000, 1)});
  EXPECT_THAT(Refusal(before, after), HasSubstr("not in both: a draft_device_us, c"));
  const auto compared = CompareResults(before, after, {.goes_across = true});
  ASSERT_TRUE(compared.ok());
  EXPECT_EQ(compared->cells.size(), 1u);
  EXPECT_THAT(compared->left_out, ElementsAre("a draft_device_us", "c"));
}

TEST(CompareResults, RefusesWhatIsNoCompleteResultEvenAcross) {
  const Json good = Result({Cell("a", 1000, 1)});
  Json other_schema = good, interrupted = good, empty = good, malformed = good;
  other_schema["schema"] = "tp2-bench/2";
  interrupted["complete"] = false;
  empty["cells"] = Json::array();
  malformed["cells"] = {{{"cell", 7}}};
  EXPECT_THAT(Refusal(good, other_schema, true), HasSubstr("expected schema tp2-bench/1"));
  EXPECT_THAT(Refusal(interrupted, good, true), HasSubstr("first file: expected a complete run"));
  EXPECT_THAT(Refusal(good, empty, true), HasSubstr("second file: expected timed cells"));
  EXPECT_THAT(Refusal(good, malformed, true), HasSubstr("with an id and a primary series"));
  EXPECT_THAT(Refusal(good, Json::array(), true), HasSubstr("second file"));
  EXPECT_THAT(Refusal(good, Result({Cell("z", 1, 0)}), true), HasSubstr("a cell of the first"));
}

TEST(CompareResults, ASeriesOfOtherTypesIsLeftOut) {
  Json after = Result({Cell("a", 1000, 1), Cell("b", 1, 1)});
  const Json before = after;
  after["cells"][0]["draft_device_us"]["p50"] = "fast";
  const auto compared = CompareResults(before, after, {.goes_across = true});
  ASSERT_TRUE(compared.ok());
  EXPECT_THAT(compared->left_out, ElementsAre("a draft_device_us"));
}

}  // namespace
}  // namespace tp2::bench
