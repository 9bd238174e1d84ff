// Nearest-rank percentiles at the ranks where off-by-one errors show.
#include "libcore/base/percentile.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tp2 {
namespace {

std::vector<int64_t> DownFrom(int64_t count) {
  std::vector<int64_t> values;
  for (int64_t value = count; value > 0; --value) values.push_back(value);
  return values;
}

TEST(NearestRank, IsAMeasuredValueWhateverTheOrder) {
  EXPECT_EQ(NearestRank(DownFrom(4), 50), 2);
  EXPECT_EQ(NearestRank(DownFrom(5), 50), 3);
  EXPECT_EQ(NearestRank(DownFrom(300), 99), 297);
  EXPECT_EQ(NearestRank(DownFrom(100), 99), 99);
}

TEST(NearestRank, OfFewValuesIsTheirLargest) {
  EXPECT_EQ(NearestRank(DownFrom(99), 99), 99);
  EXPECT_EQ(NearestRank(DownFrom(1), 50), 1);
}

TEST(NearestRank, ReachesBothEnds) {
  EXPECT_EQ(NearestRank(DownFrom(7), 0), 1);
  EXPECT_EQ(NearestRank(DownFrom(7), 100), 7);
}

TEST(MedianDeviation, IgnoresOneOutlier) {
  EXPECT_EQ(MedianDeviation(std::vector<int64_t>{10, 12, 11, 9, 1000}), 1);
}

TEST(MedianDeviation, NeedsNoSign) {
  EXPECT_EQ(MedianDeviation(std::vector<uint32_t>{1, 2, 3, 4, 9}), 1u);
}

}  // namespace
}  // namespace tp2
