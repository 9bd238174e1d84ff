// Range and accuracy of the products, and the equality of every vector instruction set.
#include <gtest/gtest.h>

#include "hwy/highway.h"
#include "libcore/exl3/linear_kernels.h"
#include "tests/exl3/test_matrix.h"

namespace tp2::exl3 {
namespace {

constexpr Codebook kCodebooks[] = {Codebook::k3Inst, Codebook::kMcg, Codebook::kMul1};

TEST(LinearNumerics, RelativeErrorIsAtMostFourHundredthsOfAPercent) {
  ThreadPool pool(2);
  for (const Codebook codebook : kCodebooks) {
    for (const int k : {128, 1152, 1280, 5120, 15360}) {
      const TestMatrix matrix = RandomMatrix(k, 128, k == 5120 ? 2 : 5, codebook, k);
      const std::vector<float> x = RandomRows(int64_t{2} * k, k);
      const std::vector<float> y = RunLinear(matrix.view(), x, 2, pool);
      EXPECT_LE(RelativeError(matrix.view(), WeightForm::kFp16, x, 2, y), 0.0004)
          << CodebookName(codebook) << " k " << k;
    }
  }
}

// Inputs whose transform is +-1 everywhere put every |v| at 32258; one byte repeated makes every
// state of an 8-bit tile the same, so every weight is as small or as large as such tiles allow.
TEST(LinearNumerics, LargestSumsOverTheDeepestMatrixAreExact) {
  constexpr int kDepth = 15360;
  uint8_t largest = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (Exl3ByteSum(static_cast<uint16_t>(byte * 257)) >
        Exl3ByteSum(static_cast<uint16_t>(largest * 257))) {
      largest = static_cast<uint8_t>(byte);
    }
  }
  ASSERT_GT(Exl3ByteSum(static_cast<uint16_t>(largest * 257)), 800);
  ThreadPool pool(2);
  for (const uint8_t byte : {uint8_t{0}, largest}) {
    TestMatrix matrix = RandomMatrix(kDepth, 128, 8, Codebook::kMul1, 1);
    std::fill(matrix.trellis.begin(), matrix.trellis.end(), static_cast<uint16_t>(byte * 257));
    std::fill(matrix.suh.begin(), matrix.suh.end(), ToFp16(1.0f));
    const std::vector<int32_t> grid = NumeratorGrid(matrix.view());
    ASSERT_EQ(grid[0], 887 * Exl3ByteSum(static_cast<uint16_t>(byte * 257)) - 452608);
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> x(kDepth);
      for (int i = 0; i < kDepth; i += 128) x[i] = sign;
      const std::vector<float> y = RunLinear(matrix.view(), x, 1, pool);
      EXPECT_EQ(Bits(y), Bits(DefinedRow(matrix.view(), grid, x.data())));
      // Each sum is 15360 weights over sqrt(128); 128 equal sums over sqrt(128) meet in output 0.
      const double total = sign * kDepth * grid[0] * 0x1p-17;
      EXPECT_NEAR(y[0], total * ToFloat(matrix.svh[0]), 1e-6 * std::fabs(total));
    }
  }
}

class OddRows : public testing::TestWithParam<Codebook> {
 protected:
  OddRows() : matrix_(RandomMatrix(256, 256, 3, GetParam(), 9)), pool_(2) {}
  TestMatrix matrix_;
  ThreadPool pool_;
};

TEST_P(OddRows, AZeroRowGivesZeros) {
  for (const float y : RunLinear(matrix_.view(), std::vector<float>(256), 1, pool_)) {
    EXPECT_EQ(y, 0.0f);
  }
}

TEST_P(OddRows, ANonFiniteInputMakesItsRowNanAndNoOther) {
  const std::vector<float> healthy = RandomRows(3 * 256, 9);
  const std::vector<uint32_t> expected = Bits(RunLinear(matrix_.view(), healthy, 3, pool_));
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), 3e38f}) {
    std::vector<float> x = healthy;
    // 3e38 is finite; 128 of them with the signs of suh overflow inside the transform.
    for (int i = 0; i < 128; ++i) x[256 + i] = std::copysign(bad, ToFloat(matrix_.suh[i]));
    const std::vector<float> y = RunLinear(matrix_.view(), x, 3, pool_);
    const std::vector<uint32_t> bits = Bits(y);
    for (int j = 0; j < 256; ++j) {
      EXPECT_TRUE(std::isnan(y[256 + j])) << bad;
      EXPECT_EQ(bits[j], expected[j]);
      EXPECT_EQ(bits[512 + j], expected[512 + j]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryCodebook, OddRows, testing::ValuesIn(kCodebooks),
                         [](const auto& each) { return std::string(CodebookName(each.param)); });

// The threshold is on the largest transformed input: 2^-100 itself is still multiplied.
TEST(LinearNumerics, RowsBelowTheThresholdAreZeroAndTheThresholdItselfIsNot) {
  ThreadPool pool(1);
  TestMatrix matrix = RandomMatrix(128, 128, 3, Codebook::kMul1, 9);
  std::fill(matrix.suh.begin(), matrix.suh.end(), ToFp16(1.0f));
  const std::vector<int32_t> grid = NumeratorGrid(matrix.view());
  std::vector<float> x(128);
  x[3] = std::nextafter(0x1p-100f, 0.0f);
  for (const float y : RunLinear(matrix.view(), x, 1, pool)) EXPECT_EQ(y, 0.0f);
  x[3] = 0x1p-100f;
  const std::vector<float> y = RunLinear(matrix.view(), x, 1, pool);
  EXPECT_EQ(Bits(y), Bits(DefinedRow(matrix.view(), grid, x.data())));
  EXPECT_NE(y[0], 0.0f);
}

TEST(LinearNumerics, VeryLargeFiniteRowsFollowTheDefinition) {
  ThreadPool pool(1);
  const TestMatrix matrix = RandomMatrix(256, 128, 3, Codebook::kMul1, 9);
  std::vector<float> x = RandomRows(256, 9);
  for (float& value : x) value *= 0x1p110f;
  EXPECT_EQ(Bits(RunLinear(matrix.view(), x, 1, pool)),
            Bits(DefinedRow(matrix.view(), NumeratorGrid(matrix.view()), x.data())));
}

// Restores the machine's own choice of instruction set.
class TargetGuard {
 public:
  ~TargetGuard() { Choose(0); }
  static void Choose(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

TEST(LinearNumerics, EveryInstructionSetOfThisMachineGivesTheSameBits) {
  const TargetGuard guard;
  ThreadPool pool(1);
  int targets = 0;
  for (int bits = 1; bits <= kMaxBits; ++bits) {
    for (const Codebook codebook : kCodebooks) {
      const TestMatrix matrix = RandomMatrix(384, 256, bits, codebook, 10 + bits);
      const std::vector<float> x = RandomRows(9 * 384, bits);
      TargetGuard::Choose(0);
      const std::vector<uint32_t> expected = Bits(RunLinear(matrix.view(), x, 9, pool));
      targets = 0;
      for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
        TargetGuard::Choose(target);
        ASSERT_STREQ(KernelTargetName(), hwy::TargetName(target));
        ASSERT_EQ(Bits(RunLinear(matrix.view(), x, 9, pool)), expected)
            << KernelTargetName() << " " << bits << " bits " << CodebookName(codebook);
        ++targets;
      }
    }
  }
  EXPECT_GE(targets, 2) << "only one instruction set was compared";
}

}  // namespace
}  // namespace tp2::exl3
