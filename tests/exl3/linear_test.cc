#include "libcore/exl3/linear.h"

#include <gtest/gtest.h>

#include "libcore/math/hadamard.h"
#include "tests/exl3/test_matrix.h"

namespace tp2::exl3 {
namespace {

constexpr Codebook kCodebooks[] = {Codebook::k3Inst, Codebook::kMcg, Codebook::kMul1};

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

// Widths that are odd multiples of 128 (bug 14 of the research note), several threads.
TEST(IntegerLinear, OddWidthsAndThreadsEqualTheDefinition) {
  ThreadPool pool(3);
  for (const int n : {128, 384, 1152, 1280}) {
    const TestMatrix matrix = RandomMatrix(256, n, 5, Codebook::kMul1, n);
    const std::vector<int32_t> grid = NumeratorGrid(matrix.view());
    const std::vector<float> x = RandomRows(256, n);
    EXPECT_EQ(Bits(RunLinear(matrix.view(), x, 1, pool)),
              Bits(DefinedRow(matrix.view(), grid, x.data())))
        << n;
  }
}

TEST(Fp16Linear, EqualsTheWrittenDefinitionBitForBit) {
  ThreadPool pool(1);
  for (int bits = 1; bits <= kMaxBits; ++bits) {
    for (const Codebook codebook : {Codebook::k3Inst, Codebook::kMcg}) {
      const TestMatrix matrix = RandomMatrix(384, 256, bits, codebook, bits);
      const std::vector<double> grid = DecodeGrid(matrix.view(), WeightForm::kFp16);
      const std::vector<float> x = RandomRows(7 * 384, bits);
      const std::vector<float> y = RunLinear(matrix.view(), x, 7, pool);
      for (int row = 0; row < 7; ++row) {
        std::vector<float> r(384), sums(256);
        for (int i = 0; i < 384; ++i) r[i] = x[row * 384 + i] * ToFloat(matrix.suh[i]);
        for (int i = 0; i < 384; i += 128) PlainTransform(&r[i]);
        for (int i = 0; i < 384; ++i) {
          const float a = ToFloat(ToFp16(r[i] * kHadamardNorm));
          for (int j = 0; j < 256; ++j) sums[j] += a * static_cast<float>(grid[i * 256 + j]);
        }
        for (int j = 0; j < 256; j += 128) PlainTransform(&sums[j]);
        for (int j = 0; j < 256; ++j) {
          ASSERT_EQ(y[row * 256 + j], sums[j] * kHadamardNorm * ToFloat(matrix.svh[j]));
        }
      }
    }
  }
}

TEST(Linear, OnlyMul1HasPortableBits) {
  for (const Codebook codebook : kCodebooks) {
    EXPECT_EQ(HasPortableBits({.codebook = codebook}), codebook == Codebook::kMul1);
  }
}

TEST(Linear, ARowsBitsDoNotDependOnItsMates) {
  ThreadPool pool(2);
  for (const Codebook codebook : kCodebooks) {
    const TestMatrix matrix = RandomMatrix(640, 256, 3, codebook, 2);
    const std::vector<float> x = RandomRows(24 * 640, 2);
    const std::vector<uint32_t> all = Bits(RunLinear(matrix.view(), x, 24, pool));
    for (int row = 0; row < 24; ++row) {
      const std::vector<float> alone(&x[row * 640], &x[row * 640] + 640);
      const std::vector<uint32_t> got = Bits(RunLinear(matrix.view(), alone, 1, pool));
      ASSERT_TRUE(std::equal(got.begin(), got.end(), all.begin() + row * 256)) << row;
    }
  }
}

TEST(Linear, ThreadsDoNotChangeBits) {
  for (const Codebook codebook : kCodebooks) {
    const TestMatrix matrix = RandomMatrix(384, 1280, 2, codebook, 3);
    const std::vector<float> x = RandomRows(6 * 384, 3);
    ThreadPool one(1);
    const std::vector<uint32_t> expected = Bits(RunLinear(matrix.view(), x, 6, one));
    for (const int threads : {2, 3, 7}) {
      ThreadPool pool(threads);
      EXPECT_EQ(Bits(RunLinear(matrix.view(), x, 6, pool)), expected) << threads;
    }
  }
}

TEST(Linear, OutputsOfAColumnSliceAreTheSliceOfTheOutputs) {
  ThreadPool pool(2);
  for (const Codebook codebook : kCodebooks) {
    const TestMatrix matrix = RandomMatrix(256, 640, 5, codebook, 4);
    const std::vector<float> x = RandomRows(5 * 256, 4);
    const std::vector<uint32_t> whole = Bits(RunLinear(matrix.view(), x, 5, pool));
    for (const auto& [begin, end] : {std::pair{0, 128}, {128, 512}, {384, 640}}) {
      const MatrixView slice = SliceOutputs(matrix.view(), begin, end);
      const std::vector<uint32_t> got = Bits(RunLinear(slice, x, 5, pool));
      for (int row = 0; row < 5; ++row) {
        ASSERT_TRUE(std::equal(&got[row * slice.n], &got[row * slice.n] + slice.n,
                               &whole[row * 640 + begin]));
      }
    }
  }
}

// Halves of a row cut: each reads its part of a wider x, and their sum stays inside the bound that
// the whole matrix keeps.
TEST(Linear, PartialSumsOfRowHalvesStayWithinTheWholesBound) {
  ThreadPool pool(2);
  const TestMatrix matrix = RandomMatrix(2304, 128, 2, Codebook::kMul1, 5);
  const std::vector<float> x = RandomRows(3 * 2304, 5);
  std::vector<float> sum(3 * 128);
  for (const int begin : {0, 1152}) {
    std::vector<float> half(3 * 128);
    Linear({.matrix = SliceInputs(matrix.view(), begin, begin + 1152),
            .x = x.data() + begin,
            .x_stride = 2304,
            .rows = 3,
            .y = half.data(),
            .y_stride = 128},
           pool);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += half[i];
  }
  EXPECT_LE(RelativeError(matrix.view(), WeightForm::kFp16, x, 3, sum), 0.0004);
}

// Bug 2 of the research note: gate and up with different suh, written into one strided buffer.
TEST(Linear, BatchWithSharedInputAndStridedOutputsHasTheBitsOfSingleProducts) {
  ThreadPool pool(2);
  const std::vector<float> x = RandomRows(3 * 384, 6);
  std::vector<TestMatrix> matrices;
  for (const int n : {256, 128, 384}) {
    matrices.push_back(RandomMatrix(384, n, 2 + n / 128,
                                    n == 128 ? Codebook::kMcg : Codebook::kMul1,
                                    static_cast<uint64_t>(n)));
  }
  constexpr int kPitch = 256 + 128 + 384 + 5;
  constexpr float kCanary = 12345.0f;
  std::vector<float> y(3 * kPitch, kCanary);
  std::vector<LinearArgs> batch;
  int column = 0;
  for (const TestMatrix& matrix : matrices) {
    batch.push_back({.matrix = matrix.view(),
                     .x = x.data(),
                     .x_stride = 384,
                     .rows = 3,
                     .y = y.data() + column,
                     .y_stride = kPitch});
    column += matrix.n;
  }
  batch.push_back({.matrix = matrices[0].view()});  // an expert that nobody chose
  LinearBatch(batch, pool);
  column = 0;
  for (const TestMatrix& matrix : matrices) {
    const std::vector<float> single = RunLinear(matrix.view(), x, 3, pool);
    for (int row = 0; row < 3; ++row) {
      for (int i = 0; i < matrix.n; ++i) {
        ASSERT_EQ(y[row * kPitch + column + i], single[row * matrix.n + i]);
      }
    }
    column += matrix.n;
  }
  for (int row = 0; row < 3; ++row) {
    for (int i = column; i < kPitch; ++i) EXPECT_EQ(y[row * kPitch + i], kCanary);
  }
}

// The trellis of a mapped file is only 2-byte aligned and may end with the file.
TEST(Linear, ReadsATrellisThatIsAlignedToTwoBytesAndEndsItsBuffer) {
  ThreadPool pool(1);
  for (int bits = 1; bits <= kMaxBits; ++bits) {
    const TestMatrix matrix = RandomMatrix(128, 128, bits, Codebook::kMul1, 7);
    const std::vector<float> x = RandomRows(128, 7);
    const std::vector<uint32_t> expected = Bits(RunLinear(matrix.view(), x, 1, pool));
    std::vector<uint16_t> shifted(matrix.trellis.size() + 1);
    std::copy(matrix.trellis.begin(), matrix.trellis.end(), shifted.begin() + 1);
    shifted.shrink_to_fit();
    MatrixView view = matrix.view();
    view.trellis = shifted.data() + 1;
    EXPECT_EQ(Bits(RunLinear(view, x, 1, pool)), expected) << bits;
  }
}

TEST(Linear, DeadOutputsAreZero) {
  ThreadPool pool(1);
  for (const Codebook codebook : kCodebooks) {
    TestMatrix matrix = RandomMatrix(128, 128, 4, codebook, 8);
    matrix.svh[5] = Fp16{0};
    EXPECT_EQ(RunLinear(matrix.view(), RandomRows(128, 8), 1, pool)[5], 0.0f);
  }
}

TEST(LinearDeathTest, RefusesShapesThatTheLoaderWouldRefuse) {
  ThreadPool pool(1);
  const TestMatrix matrix = RandomMatrix(128, 128, 4, Codebook::kMul1, 8);
  const std::vector<float> x = RandomRows(128, 8);
  MatrixView narrow = matrix.view();
  narrow.n = 64;
  EXPECT_DEATH(RunLinear(narrow, x, 1, pool), "internal error");
  MatrixView nine_bits = matrix.view();
  nine_bits.bits = 9;
  EXPECT_DEATH(RunLinear(nine_bits, x, 1, pool), "internal error");
}

}  // namespace
}  // namespace tp2::exl3
