#include "libcore/exl3/decode.h"

#include <gtest/gtest.h>

#include <array>

#include "libcore/exl3/packer.h"
#include "tests/exl3/format_vectors.h"
#include "tests/exl3/test_matrix.h"

namespace tp2::exl3 {
namespace {

constexpr Codebook kCodebooks[] = {Codebook::k3Inst, Codebook::kMcg, Codebook::kMul1};

std::array<uint16_t, kTileWeights> StatesOf(const std::vector<uint16_t>& units, int bits) {
  std::array<uint16_t, kTileWeights> states;
  TileStates(units.data(), bits, states.data());
  return states;
}

void ExpectTile(int bits, const uint16_t (&states)[24], const uint16_t (&values)[256]) {
  const auto got_states = StatesOf({kUnitsSeed1, kUnitsSeed1 + 16 * bits}, bits);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(got_states[i < 16 ? i : i + 232], states[i]) << i;
  Fp16 got[kTileWeights];
  DecodeTile(kUnitsSeed1, bits, Codebook::kMul1, got);
  for (int i = 0; i < kTileWeights; ++i) EXPECT_EQ(got[i].bits, values[i]) << i;
}

TEST(Decode, GeneratorOfTheVectorsIsTheDocumentedOne) {
  const std::vector<uint16_t> units = UnitGenerator(1).Take(80);
  EXPECT_TRUE(std::equal(units.begin(), units.end(), kUnitsSeed1));
}

TEST(Decode, TwoAndFiveBitTilesHaveTheFormatsStatesAndValues) {
  ExpectTile(2, kStatesBits2, kValuesBits2);
  ExpectTile(5, kStatesBits5, kValuesBits5);
}

// A pack read with the wrong codebook gives fluent nonsense, not an error: the three must differ.
TEST(Decode, FirstWeightTellsTheCodebooksApart) {
  const uint16_t first[] = {0x3fb2, 0x3d55, 0x3c15};
  for (const Codebook codebook : kCodebooks) {
    Fp16 values[kTileWeights];
    DecodeTile(kUnitsSeed1, 2, codebook, values);
    EXPECT_EQ(values[0].bits, first[static_cast<int>(codebook)]) << CodebookName(codebook);
  }
}

TEST(Decode, TilesOfEveryWidthAndCodebookHaveTheFormatsHashes) {
  for (const TileVector& vector : kTileVectors) {
    const std::vector<uint16_t> units = UnitGenerator(1).Take(16 * vector.bits);
    Fnv1a states;
    for (const uint16_t state : StatesOf(units, vector.bits)) states.Add(state);
    EXPECT_EQ(states.hash(), vector.states) << vector.bits;
    const uint64_t expected[] = {vector.inst, vector.mcg, vector.mul1};
    for (const Codebook codebook : kCodebooks) {
      Fp16 decoded[kTileWeights];
      DecodeTile(units.data(), vector.bits, codebook, decoded);
      Fnv1a values;
      for (const Fp16 value : decoded) values.Add(value.bits);
      EXPECT_EQ(values.hash(), expected[static_cast<int>(codebook)])
          << vector.bits << " bits, " << CodebookName(codebook);
    }
  }
}

// The definition by single bits: bit 0 is the most significant bit of word 0, the ring has 256 K
// bits, and a state is the 16 bits that end behind its own.
TEST(Decode, StatesAreTheSixteenBitsThatEndAtTheirPosition) {
  for (int bits = 1; bits <= kMaxBits; ++bits) {
    const std::vector<uint16_t> units = UnitGenerator(7).Take(16 * bits);
    const int ring = 256 * bits;
    const auto bit_at = [&units](int i) {
      const int unit = i / 32 * 2 + (i % 32 < 16 ? 1 : 0);
      return (units[unit] >> (15 - i % 16)) & 1;
    };
    const auto states = StatesOf(units, bits);
    for (int p = 0; p < kTileWeights; ++p) {
      int state = 0;
      for (int i = (p + 1) * bits - 16; i < (p + 1) * bits; ++i) {
        state = 2 * state + bit_at((i + ring) % ring);
      }
      ASSERT_EQ(states[p], state) << bits << " bits, position " << p;
    }
  }
}

TEST(Decode, NeighbouringStatesShareAllButTheirNewBits) {
  for (int bits = 1; bits <= kMaxBits; ++bits) {
    const auto states = StatesOf(UnitGenerator(3).Take(16 * bits), bits);
    for (int p = 0; p < kTileWeights; ++p) {
      const uint16_t next = states[(p + 1) % kTileWeights];
      ASSERT_EQ(next >> bits, states[p] & ((1 << (16 - bits)) - 1)) << bits << " " << p;
    }
  }
}

TEST(Decode, PackingTheStatesOfATileRestoresItsUnits) {
  for (int bits = 1; bits <= kMaxBits; ++bits) {
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      const std::vector<uint16_t> units = UnitGenerator(seed).Take(16 * bits);
      std::vector<uint16_t> packed(units.size());
      PackStates(StatesOf(units, bits).data(), bits, packed.data());
      ASSERT_EQ(packed, units) << bits << " bits, seed " << seed;
    }
  }
}

TEST(Decode, PositionsCoverATileOnce) {
  std::array<int, kTileWeights> seen = {};
  for (int p = 0; p < kTileWeights; ++p) ++seen[TileRow(p) * kTile + TileColumn(p)];
  for (const int count : seen) EXPECT_EQ(count, 1);
}

// Bug 17 of the research note: a trellis cut as row-major bytes, or scales left whole.
void ExpectSlicesDecodeAlike(const TestMatrix& matrix, int begin, int end) {
  const MatrixView whole = matrix.view();
  const std::vector<double> dense = DenseWeights(whole, WeightForm::kFp16);
  const MatrixView columns = SliceOutputs(whole, begin, std::min(end, whole.n));
  const std::vector<double> column_cut = DenseWeights(columns, WeightForm::kFp16);
  for (int i = 0; i < whole.k; ++i) {
    for (int j = 0; j < columns.n; ++j) {
      ASSERT_EQ(column_cut[i * columns.n + j], dense[i * whole.n + begin + j]);
    }
  }
  const MatrixView rows = SliceInputs(whole, begin, end);
  const std::vector<double> row_cut = DenseWeights(rows, WeightForm::kFp16);
  for (int i = 0; i < rows.k; ++i) {
    for (int j = 0; j < whole.n; ++j) {
      ASSERT_EQ(row_cut[i * whole.n + j], dense[(begin + i) * whole.n + j]);
    }
  }
}

TEST(Decode, SliceOfTheDecodedMatrixIsTheDecodedSlice) {
  for (const int bits : {1, 2, 5, 6}) {
    const TestMatrix matrix = RandomMatrix(384, 256, bits, Codebook::kMul1, 11 * bits);
    for (int begin = 0; begin < 256; begin += 128) {
      for (int end = begin + 128; end <= 384; end += 128) {
        ExpectSlicesDecodeAlike(matrix, begin, end);
      }
    }
  }
}

TEST(Decode, SliceOfASliceKeepsThePitch) {
  const TestMatrix matrix = RandomMatrix(384, 384, 3, Codebook::kMul1, 5);
  const MatrixView one = SliceInputs(SliceOutputs(matrix.view(), 128, 384), 128, 256);
  const MatrixView other = SliceOutputs(SliceInputs(matrix.view(), 128, 256), 128, 384);
  EXPECT_EQ(DenseWeights(one, WeightForm::kExact), DenseWeights(other, WeightForm::kExact));
}

TEST(DecodeDeathTest, CutsInsideAHadamardBlockAreRefused) {
  const TestMatrix matrix = RandomMatrix(256, 256, 2, Codebook::kMul1, 5);
  EXPECT_DEATH(SliceOutputs(matrix.view(), 64, 256), "internal error");
  EXPECT_DEATH(SliceOutputs(matrix.view(), 0, 384), "internal error");
  EXPECT_DEATH(SliceInputs(matrix.view(), 128, 128), "internal error");
}

TEST(Decode, RoundingMul1WeightsMovesThemByTwoHundredthsOfAPercent) {
  const TestMatrix matrix = RandomMatrix(256, 256, 6, Codebook::kMul1, 9);
  const std::vector<double> rounded = DecodeGrid(matrix.view(), WeightForm::kFp16);
  const std::vector<double> exact = DecodeGrid(matrix.view(), WeightForm::kExact);
  double error = 0.0, power = 0.0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += (rounded[i] - exact[i]) * (rounded[i] - exact[i]);
    power += exact[i] * exact[i];
  }
  EXPECT_NEAR(std::sqrt(error / power), 0.00021, 0.00001);
}

TEST(Decode, StoredBytesMatchTheDraftersTable) {
  const MatrixView head = {.k = 5120, .n = 129280, .bits = 6};
  EXPECT_NEAR(static_cast<double>(head.stored_bytes()) / (1 << 20), 473.69, 0.005);
}

}  // namespace
}  // namespace tp2::exl3
