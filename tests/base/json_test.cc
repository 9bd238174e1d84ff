// JSON from outside: what is refused, and that the refusal says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "libcore/base/json.h"

namespace tp2 {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const std::string& text, const JsonLimits& limits = {}) {
  const auto parsed = ParseJson(text, "x.json", limits);
  EXPECT_FALSE(parsed.ok()) << text;
  return std::string(parsed.status().message());
}

TEST(Json, ReadsOneValue) {
  const auto parsed = ParseJson(R"({"a": [1, 2.5, "x"], "b": {"a": null}})", "x.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)["a"][1], 2.5);
  EXPECT_TRUE((*parsed)["b"]["a"].is_null());
}

TEST(Json, RefusesTheSameKeyTwiceInOneObject) {
  EXPECT_THAT(Refusal(R"({"a": 1, "b": {"c": 1, "c": 2}})"), HasSubstr("\"c\" twice"));
  EXPECT_TRUE(ParseJson(R"({"a": {"c": 1}, "b": {"c": 2}})", "x.json").ok());
}

// Both were quoted as they came: the error had two lines, or as many characters as the key.
TEST(Json, AKeyTwiceIsQuotedOnOneShortLine) {
  EXPECT_THAT(Refusal(R"({"a\nb": 1, "a\nb": 2})"), HasSubstr(R"("a\nb" twice)"));
  const std::string key(5000, 'k');
  EXPECT_LT(Refusal("{\"" + key + "\": 1, \"" + key + "\": 2}").size(), 300u);
}

TEST(Json, ANumberTooLargeIsNotQuotedWhole) {
  const std::string refusal = Refusal("[" + std::string(5000, '9') + "e999]");
  EXPECT_THAT(refusal, HasSubstr("beyond the range of fp64"));
  EXPECT_LT(refusal.size(), 300u);
}

TEST(Json, RefusesDeepNesting) {
  const JsonLimits limits = {.max_bytes = 1000, .max_depth = 4};
  EXPECT_TRUE(ParseJson("[[[[1]]]]", "x.json", limits).ok());
  EXPECT_THAT(Refusal("[[[[[1]]]]]", limits), HasSubstr("deeper than 4"));
  EXPECT_THAT(Refusal(std::string(200, '[')), HasSubstr("deeper than"));
}

TEST(Json, RefusesTooManyBytes) {
  EXPECT_THAT(Refusal("[1, 2, 3]", {.max_bytes = 8, .max_depth = 4}), HasSubstr("more than 8"));
}

TEST(Json, NamesTheFileAndTheByte) {
  const std::string refusal = Refusal("{\"a\": }");
  EXPECT_THAT(refusal, HasSubstr("x.json"));
  EXPECT_THAT(refusal, HasSubstr("byte 7"));
}

TEST(Json, RefusesTextAfterTheValueAndNothingAtAll) {
  Refusal("{} {}");
  Refusal("");
  Refusal("\xFF\xFE");
}

}  // namespace
}  // namespace tp2
