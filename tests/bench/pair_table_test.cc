// The pair's table over results as they are written.
#include "cmd/tp2-bench/pair_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libcore/bench/result.h"

namespace tp2::bench {
namespace {

using testing::HasSubstr;

Json CellOf(const char* mode, int64_t device_ns) {
  return {{"mode", mode},
          {"requests", 1},
          {"n_out", 5},
          {"draft_device_us", SeriesUs({device_ns})},
          {"last_rank_draft_device_us", SeriesUs({device_ns - 10'000})},
          {"step_host_us", SeriesUs({device_ns + 20'000})}};
}

// The table once took the groups' series for numbers and ended the run without its result.
TEST(PairTable, TakesTheMedianOfTheGroupsSeries) {
  CellGroups groups;
  for (auto& ns : groups.ns) ns = {80'000};
  groups.sum_ns = groups.device_ns = {880'000};
  Json result = NewResult("pair", {});
  result["cells"] = {CellOf("one-card", 2'000'000), CellOf("pair", 1'500'000)};
  result["cells"][1]["groups"] = GroupsJson(groups, 4000);
  const std::string table = PairTable(result);
  EXPECT_THAT(table, HasSubstr("-25.0"));
  EXPECT_THAT(table, HasSubstr("0.080"));
}

TEST(PairTable, IsEmptyWithoutAPair) {
  Json result = NewResult("one-card", {});
  EXPECT_EQ(PairTable(result), "");
  result["cells"] = {CellOf("one-card", 2'000'000)};
  EXPECT_EQ(PairTable(result), "");
}

}  // namespace
}  // namespace tp2::bench
