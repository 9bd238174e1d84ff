#include "libcore/exl3/packer.h"

#include <gtest/gtest.h>

#include <array>

#include "libcore/exl3/decode.h"
#include "tests/exl3/test_matrix.h"

namespace tp2::exl3 {
namespace {

// Relative squared error of normal targets at the scale that suits mul1.
double TileError(const PackOptions& options, int tiles) {
  const std::vector<float> normal = RandomRows(int64_t{kTileWeights} * tiles, 7);
  double error = 0.0, power = 0.0;
  for (int tile = 0; tile < tiles; ++tile) {
    float targets[kTileWeights];
    for (int i = 0; i < kTileWeights; ++i) targets[i] = 0.9f * normal[tile * kTileWeights + i];
    std::vector<uint16_t> units(static_cast<size_t>(kTile) * options.bits);
    PackTile(targets, options, units.data());
    Fp16 values[kTileWeights];
    DecodeTile(units.data(), options.bits, options.codebook, values);
    for (int i = 0; i < kTileWeights; ++i) {
      const double difference = ToFloat(values[i]) - targets[i];
      error += difference * difference;
      power += targets[i] * targets[i];
    }
  }
  return error / power;
}

// Bounds: the figures of research note exl3, section 5.3.
TEST(Packer, TileErrorStaysWithinThePublishedFigures) {
  constexpr Codebook kMul1 = Codebook::kMul1;
  EXPECT_LE(TileError({.bits = 2, .codebook = kMul1, .beam_width = 16}, 100), 0.105);
  EXPECT_LE(TileError({.bits = 5, .codebook = kMul1, .beam_width = 1}, 100), 0.043);
  EXPECT_LE(TileError({.bits = 5, .codebook = kMul1, .beam_width = 16}, 40), 0.0061);
  EXPECT_LE(TileError({.bits = 6, .codebook = kMul1, .beam_width = 1}, 100), 0.021);
  EXPECT_LE(TileError({.bits = 6, .codebook = kMul1, .beam_width = 16}, 40), 0.0020);
  EXPECT_LE(TileError({.bits = 8, .codebook = kMul1, .beam_width = 1}, 100), 0.0048);
}

TEST(Packer, AWiderBeamIsBetterInEveryCodebook) {
  for (const Codebook codebook : {Codebook::k3Inst, Codebook::kMcg, Codebook::kMul1}) {
    double before = 1.0;
    for (const int width : {1, 4, 16}) {
      const double error = TileError({.bits = 4, .codebook = codebook, .beam_width = width}, 20);
      EXPECT_LT(error, before) << CodebookName(codebook) << " width " << width;
      before = error;
    }
  }
}

// Every output is its own input: what a test needs to plant an argmax.
TEST(Packer, IdentityMatrixPassesRowsThrough) {
  constexpr int kSide = 128;
  std::vector<double> dense(kSide * kSide);
  for (int i = 0; i < kSide; ++i) dense[i * kSide + i] = 1.0;
  ThreadPool pool(2);
  const PackOptions options = {.bits = 8, .codebook = Codebook::kMul1, .beam_width = 4};
  const PackedMatrix packed = PackMatrix(
      kSide, kSide, dense, ChooseScales(kSide, kSide, dense, options.codebook, 1), options, pool);
  std::vector<float> x(kSide * kSide);
  for (int i = 0; i < kSide; ++i) x[i * kSide + i] = 1.0f;
  const std::vector<float> y = RunLinear(packed.view(), x, kSide, pool);
  for (int row = 0; row < kSide; ++row) {
    for (int column = 0; column < kSide; ++column) {
      // Eight bits leave 6 % of a weight's deviation, which is 1 / sqrt(128) here.
      ASSERT_NEAR(y[row * kSide + column], row == column ? 1.0 : 0.0, 0.03);
    }
  }
}

TEST(Packer, RandomMatrixComesBackWithinItsTileError) {
  constexpr int kK = 256, kN = 128;
  const std::vector<float> normal = RandomRows(kK * kN, 3);
  std::vector<double> dense(normal.begin(), normal.end());
  for (int i = 0; i < kK; ++i) {  // rows of very different size: suh carries it
    for (int j = 0; j < kN; ++j) dense[i * kN + j] *= std::exp2(i % 7 - 3);
  }
  ThreadPool pool(2);
  const PackOptions options = {.bits = 6, .codebook = Codebook::kMul1, .beam_width = 8};
  const PackedMatrix packed =
      PackMatrix(kK, kN, dense, ChooseScales(kK, kN, dense, options.codebook, 1), options, pool);
  const std::vector<double> got = DenseWeights(packed.view(), WeightForm::kExact);
  for (int i = 0; i < kK; ++i) {
    double error = 0.0, power = 0.0;
    for (int j = 0; j < kN; ++j) {
      error += std::pow(got[i * kN + j] - dense[i * kN + j], 2);
      power += std::pow(dense[i * kN + j], 2);
    }
    ASSERT_LE(error / power, 0.01) << "row " << i;
  }
}

TEST(Packer, ThreadsDoNotChangeThePack) {
  constexpr int kSide = 128;
  const std::vector<float> normal = RandomRows(kSide * kSide, 3);
  const std::vector<double> dense(normal.begin(), normal.end());
  const Scales scales = ChooseScales(kSide, kSide, dense, Codebook::kMul1, 1);
  const PackOptions options = {.bits = 3, .codebook = Codebook::kMul1, .beam_width = 4};
  ThreadPool one(1), three(3);
  EXPECT_EQ(PackMatrix(kSide, kSide, dense, scales, options, one).trellis,
            PackMatrix(kSide, kSide, dense, scales, options, three).trellis);
}

}  // namespace
}  // namespace tp2::exl3
