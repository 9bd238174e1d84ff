// RoPE frequencies and angles.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "libcore/base/rng.h"
#include "libcore/math/rope.h"

namespace tp2 {
namespace {

TEST(Rope, FrequencyIsRoundedTwice) {
  // Rounding theta^(-2i/d) once gives other values for exactly these pairs (research note
  // dspark-model 3.2).
  std::vector<int> differing;
  for (int i = 0; i < 32; ++i) {
    const float once = static_cast<float>(1.0 / std::pow(10000.0, 2.0 * i / 64));
    if (once != RopeFrequency(10000.0, 64, i)) differing.push_back(i);
  }
  EXPECT_EQ(differing, (std::vector<int>{5, 9, 10, 12, 13, 15, 20, 27, 28, 29}));
}

TEST(Rope, CosAndSinAreCorrectlyRounded) {
  Rng rng(3);
  int wrong = 0;
  for (int i = 0; i < 200000; ++i) {
    // Small, medium and the largest angles that a million positions produce.
    const float limit = i % 3 == 0 ? 1.0f : (i % 3 == 1 ? 1000.0f : 1048576.0f);
    const float angle = std::fabs(rng.Signed()) * limit;
    const CosSin got = RopeCosSin(angle);
    const float cosine = static_cast<float>(std::cos(static_cast<long double>(angle)));
    const float sine = static_cast<float>(std::sin(static_cast<long double>(angle)));
    wrong += got.cos != cosine || got.sin != sine;
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Rope, QuadrantsAndZero) {
  EXPECT_EQ(RopeCosSin(0.0f).cos, 1.0f);
  EXPECT_EQ(RopeCosSin(0.0f).sin, 0.0f);
  for (int position : {1, 2, 3, 4, 5, 6, 7, 1048575}) {
    const CosSin got = RopeCosSin(static_cast<float>(position));
    EXPECT_EQ(got.cos, static_cast<float>(std::cos(static_cast<double>(position))));
    EXPECT_EQ(got.sin, static_cast<float>(std::sin(static_cast<double>(position))));
  }
}

TEST(Rope, AngleIsTheRoundedProduct) {
  // Near position 327,600 the fp32 product differs visibly from the exact one.
  const float frequency = RopeFrequency(10000.0, 32, 5);
  const double exact = 327600.0 * static_cast<double>(frequency);
  CosSin row;
  RopeTableRow(327600, &frequency, 1, &row);
  EXPECT_EQ(row.cos, static_cast<float>(std::cos(static_cast<double>(static_cast<float>(exact)))));
  EXPECT_NE(row.cos, static_cast<float>(std::cos(exact)));
}

TEST(Rope, InverseUndoesTheRotation) {
  float a = 0.75f, b = -1.25f;
  const CosSin t = RopeCosSin(2.0f);
  RopePair(t, a, b);
  EXPECT_NEAR(a, 0.75 * std::cos(2.0) + 1.25 * std::sin(2.0), 1e-6);
  EXPECT_NEAR(b, 0.75 * std::sin(2.0) - 1.25 * std::cos(2.0), 1e-6);
  RopePairInverse(t, a, b);
  EXPECT_NEAR(a, 0.75f, 1e-6);
  EXPECT_NEAR(b, -1.25f, 1e-6);
}

}  // namespace
}  // namespace tp2
