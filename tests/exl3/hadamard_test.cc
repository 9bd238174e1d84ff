#include "libcore/math/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tp2 {
namespace {

TEST(Hadamard, NormIsTheFormatsConstant) {
  EXPECT_EQ(std::bit_cast<uint32_t>(kHadamardNorm), 0x3DB504F3u);
}

TEST(Hadamard, EntriesFollowPopcountParity) {
  for (uint32_t column = 0; column < 128; ++column) {
    float values[kHadamardPoints] = {};
    values[column] = 1.0f;
    Fwht128(values);
    for (uint32_t row = 0; row < 128; ++row) {
      ASSERT_EQ(values[row], std::popcount(row & column) % 2 == 0 ? 1.0f : -1.0f);
    }
  }
}

TEST(Hadamard, AppliedTwiceMultipliesBy128) {
  float values[kHadamardPoints];
  for (int i = 0; i < kHadamardPoints; ++i) values[i] = static_cast<float>(i * i % 97 - 48);
  float twice[kHadamardPoints];
  std::copy(values, values + kHadamardPoints, twice);
  Fwht128(twice);
  Fwht128(twice);
  for (int i = 0; i < kHadamardPoints; ++i) EXPECT_EQ(twice[i], 128.0f * values[i]);
}

// Seven additions of values up to 128 in magnitude: error far below 1e-6 of the largest sum.
TEST(Hadamard, StaysWithinAMillionthOfDoublePrecision) {
  float values[kHadamardPoints];
  double exact[kHadamardPoints] = {};
  for (int i = 0; i < kHadamardPoints; ++i) values[i] = std::sin(static_cast<float>(i * i + 1));
  for (uint32_t row = 0; row < 128; ++row) {
    for (uint32_t column = 0; column < 128; ++column) {
      exact[row] += std::popcount(row & column) % 2 == 0 ? values[column] : -values[column];
    }
  }
  Fwht128(values);
  double largest = 0.0;
  for (const double value : exact) largest = std::max(largest, std::fabs(value));
  for (int i = 0; i < kHadamardPoints; ++i) EXPECT_NEAR(values[i], exact[i], 1e-6 * largest);
}

}  // namespace
}  // namespace tp2
