#include "libcore/exl3/linear.h"

#include <gtest/gtest.h>

#include "tests/exl3/test_matrix.h"

namespace tp2::exl3 {
namespace {

// Every K, several depths (1152 and 1280 are the halves of a drafter's narrow matrices) and row
// counts on both sides of a pass, against the definition, bit for bit.
TEST(IntegerLinear, EqualsTheWrittenDefinitionBitForBit) {
  ThreadPool pool(1);
  for (int bits = 1; bits <= kMaxBits; ++bits) {
    for (const int k : {128, 256, 1152, 1280}) {
      const int n = k == 256 ? 384 : 128;
      const TestMatrix matrix = RandomMatrix(k, n, bits, Codebook::kMul1, 100 * bits + k);
      const std::vector<int32_t> grid = NumeratorGrid(matrix.view());
      constexpr int kRows = 24;
      const std::vector<float> x = RandomRows(int64_t{kRows} * k, bits + k);
      std::vector<uint32_t> expected;
      for (int row = 0; row < kRows; ++row) {
        for (const uint32_t word : Bits(DefinedRow(matrix.view(), grid, &x[row * k]))) {
          expected.push_back(word);
        }
      }
      for (int rows = 1; rows <= kRows; ++rows) {
        const std::vector<uint32_t> got = Bits(RunLinear(matrix.view(), x, rows, pool));
        ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin()))
            << "bits " << bits << " k " << k << " rows " << rows;
      }
    }
  }
}

}  // namespace
}  // namespace tp2::exl3
