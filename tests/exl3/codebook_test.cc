#include "libcore/math/exl3_codebook.h"

#include <gtest/gtest.h>

#include "libcore/exl3/decode.h"
#include "tests/exl3/format_vectors.h"

namespace tp2::exl3 {
namespace {

uint64_t TableHash(Codebook codebook) {
  Fnv1a hash;
  for (int state = 0; state < 65536; ++state) {
    hash.Add(StateValue(codebook, static_cast<uint16_t>(state)).bits);
  }
  return hash.hash();
}

TEST(Exl3Codebook, SingleStatesHaveTheFormatsValues) {
  for (const StateVector& vector : kStateVectors) {
    EXPECT_EQ(Exl3InstValue(vector.state).bits, vector.inst) << vector.state;
    EXPECT_EQ(Exl3McgValue(vector.state).bits, vector.mcg) << vector.state;
    EXPECT_EQ(Exl3Mul1Value(vector.state).bits, vector.mul1) << vector.state;
  }
}

TEST(Exl3Codebook, WholeTablesHaveTheFormatsHashes) {
  EXPECT_EQ(TableHash(Codebook::k3Inst), kInstTableHash);
  EXPECT_EQ(TableHash(Codebook::kMcg), kMcgTableHash);
  EXPECT_EQ(TableHash(Codebook::kMul1), kMul1TableHash);
}

TEST(Exl3Codebook, ValueTableHoldsEveryStateValue) {
  for (const Codebook codebook : {Codebook::k3Inst, Codebook::kMcg, Codebook::kMul1}) {
    const float* table = ValueTable(codebook);
    for (int state = 0; state < 65536; ++state) {
      ASSERT_EQ(table[state], ToFloat(StateValue(codebook, static_cast<uint16_t>(state))));
    }
  }
}

TEST(Exl3Codebook, WorkedExampleOfTheByteSum) {
  static_assert(Exl3Mul1Product(0x1234) == 0x4F8FA724u);
  static_assert(Exl3ByteSum(0x1234) == 425);
  static_assert(Exl3Mul1Numerator(0x1234) == 887 * 425 - 452608);
}

// The kernels carry byte sums as u = b - 510 and rely on its range.
TEST(Exl3Codebook, ByteSumsSpanZeroToOneThousandAndFive) {
  int32_t smallest = 1 << 20, largest = 0;
  for (int state = 0; state < 65536; ++state) {
    const int32_t sum = Exl3ByteSum(static_cast<uint16_t>(state));
    smallest = std::min(smallest, sum);
    largest = std::max(largest, sum);
  }
  EXPECT_EQ(smallest, 0);
  EXPECT_EQ(largest, 1005);
}

}  // namespace
}  // namespace tp2::exl3
