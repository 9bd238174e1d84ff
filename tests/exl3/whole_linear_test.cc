// The whole-linear vector of the format: k = 256, n = 128, two bits, mul1, two rows.
#include <gtest/gtest.h>

#include "libcore/math/hadamard.h"
#include "tests/exl3/format_vectors.h"
#include "tests/exl3/test_matrix.h"

namespace tp2::exl3 {
namespace {

constexpr int kK = 256, kN = 128, kRows = 2;

Fp16 ScaleOf(uint16_t unit) {
  const float magnitude = 0.75f + static_cast<float>(unit & 255) / 512.0f;
  return ToFp16((unit & 256) != 0 ? -magnitude : magnitude);
}

class WholeLinear : public testing::Test {
 protected:
  WholeLinear() : matrix_{kK, kN, 2, Codebook::kMul1, UnitGenerator(1).Take(kK * kN / 8), {}, {}} {
    for (const uint16_t unit : UnitGenerator(2).Take(kK)) matrix_.suh.push_back(ScaleOf(unit));
    for (const uint16_t unit : UnitGenerator(3).Take(kN)) matrix_.svh.push_back(ScaleOf(unit));
    for (const uint16_t unit : UnitGenerator(4).Take(kRows * kK)) {
      x_.push_back(static_cast<float>((unit & 0x3ff) - 512) / 256.0f);
    }
  }

  // The format's own input transform: x * suh rounded to fp16, fp32 butterfly, fp16.
  std::vector<Fp16> TransformedRow(int row) const {
    std::vector<float> values;
    for (int i = 0; i < kK; ++i) {
      values.push_back(ToFloat(ToFp16(x_[row * kK + i] * ToFloat(matrix_.suh[i]))));
    }
    Fwht128(&values[0]);
    Fwht128(&values[128]);
    std::vector<Fp16> transformed;
    for (const float value : values) transformed.push_back(ToFp16(value * kHadamardNorm));
    return transformed;
  }

  TestMatrix matrix_;
  std::vector<float> x_;
};

TEST_F(WholeLinear, InputsAreTheVectors) {
  const uint16_t suh[] = {0x3c42, 0xbc80, 0x3b7c, 0xbcda};
  const uint16_t svh[] = {0x3c76, 0x3cf2, 0xbc50, 0xbb9c};
  const uint16_t x[] = {0xbcb0, 0xbf3c, 0x3b88, 0xbc80};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(matrix_.suh[i].bits, suh[i]);
    EXPECT_EQ(matrix_.svh[i].bits, svh[i]);
    EXPECT_EQ(ToFp16(x_[i]).bits, x[i]);
  }
}

TEST_F(WholeLinear, InputTransformHasTheFormatsBits) {
  const uint16_t first[kRows][8] = {
      {0xb6d5, 0xbb31, 0xb9d2, 0x3bdc, 0xbbd0, 0x3ab7, 0x3deb, 0xbe2b},
      {0xb97e, 0x4195, 0x311b, 0xb6ab, 0xbac6, 0xae17, 0xa9ba, 0x3a97}};
  const uint16_t second[kRows][4] = {{0x3ce2, 0x3c2f, 0x403c, 0xbd1d},
                                     {0x39e4, 0x399b, 0xb67f, 0xb7e6}};
  for (int row = 0; row < kRows; ++row) {
    const std::vector<Fp16> transformed = TransformedRow(row);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(transformed[i].bits, first[row][i]);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(transformed[128 + i].bits, second[row][i]);
  }
}

TEST_F(WholeLinear, ProductAndOutputTransformGiveTheFormatsValues) {
  const double product[kRows][4] = {{-1.758739818, 0.535641021, -11.096060222, -9.601146108},
                                    {19.654718215, -24.921871736, -1.897964240, -18.152317943}};
  const double output[kRows][8] = {{-13.02540141, -45.40420457, 3.16228974, -1.48729131, 3.08476170,
                                    3.68757767, 4.76528803, -20.48208172},
                                   {0.83532973, -20.20066518, -20.33241529, -8.20846389,
                                    19.95351129, -32.35852569, -9.95582586, -6.44523916}};
  const std::vector<double> grid = DecodeGrid(matrix_.view(), WeightForm::kFp16);
  for (int row = 0; row < kRows; ++row) {
    const std::vector<Fp16> a = TransformedRow(row);
    std::vector<double> c(kN), y(kN);
    for (int i = 0; i < kK; ++i) {
      for (int j = 0; j < kN; ++j) c[j] += ToFloat(a[i]) * grid[i * kN + j];
    }
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(c[i], product[row][i], 1e-9);
    for (uint32_t i = 0; i < kN; ++i) {
      for (uint32_t j = 0; j < kN; ++j) y[i] += std::popcount(i & j) % 2 == 0 ? c[j] : -c[j];
      y[i] *= ToFloat(matrix_.svh[i]) / std::sqrt(128.0);
    }
    for (int i = 0; i < 8; ++i) EXPECT_NEAR(y[i], output[row][i], 1e-8);
  }
}

TEST_F(WholeLinear, DenseWeightsHaveTheFormatsValues) {
  const std::vector<double> dense = DenseWeights(matrix_.view(), WeightForm::kFp16);
  EXPECT_NEAR(dense[0], -0.898281756, 1e-9);
  EXPECT_NEAR(dense[1], 1.102452074, 1e-9);
  EXPECT_NEAR(dense[2], 2.283252063, 1e-9);
  EXPECT_NEAR(dense[3], -0.394689958, 1e-9);
  EXPECT_NEAR(dense[1 * kN], -0.351198509, 1e-9);
  EXPECT_NEAR(dense[128 * kN], -0.537003449, 1e-9);
  EXPECT_NEAR(dense[255 * kN + 127], 0.574036487, 1e-9);
}

TEST_F(WholeLinear, IntegerPathIsWithinFourHundredthsOfAPercentOfNoRoundingAtAll) {
  const double exact[kRows][4] = {{-13.03690873, -45.39297567, 3.16694526, -1.49060832},
                                  {0.83690441, -20.20441863, -20.33928353, -8.21202855}};
  ThreadPool pool(1);
  const std::vector<float> y = RunLinear(matrix_.view(), x_, kRows, pool);
  for (int row = 0; row < kRows; ++row) {
    double error = 0.0, power = 0.0;
    for (int i = 0; i < 4; ++i) {
      error += std::pow(y[row * kN + i] - exact[row][i], 2);
      power += std::pow(exact[row][i], 2);
    }
    EXPECT_LE(std::sqrt(error / power), 0.0004);
  }
  EXPECT_LE(RelativeError(matrix_.view(), WeightForm::kFp16, x_, kRows, y), 0.0004);
}

// The same trellis under the other codebooks, by the fp16 path: its only differences from the
// format's kernels are the roundings of its inputs.
TEST_F(WholeLinear, Fp16PathIsWithinFourHundredthsOfAPercentOfNoRoundingAtAll) {
  ThreadPool pool(1);
  for (const Codebook codebook : {Codebook::k3Inst, Codebook::kMcg}) {
    matrix_.codebook = codebook;
    const std::vector<float> y = RunLinear(matrix_.view(), x_, kRows, pool);
    EXPECT_LE(RelativeError(matrix_.view(), WeightForm::kFp16, x_, kRows, y), 0.0004);
  }
}

}  // namespace
}  // namespace tp2::exl3
