// The vector kernels against the scalar canonical order of libcore/math/reduce.h, bit for bit.
#include "libcore/ops/cpu/canonical_matvec.h"

#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libcore/base/rng.h"
#include "libcore/math/bf16.h"
#include "libcore/math/fp16.h"
#include "libcore/math/fp8.h"
#include "libcore/math/reduce.h"

namespace tp2 {
namespace {

constexpr int kXRows = 19;  // more than one block of rows
constexpr int kWeightRows = 37;

std::vector<float> RandomValues(size_t count, uint64_t seed) {
  Rng random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = random.Signed();
  return values;
}

template <int V>
void ExpectCanonical(CanonicalMatVecArgs args, const std::vector<float>& decoded) {
  const int64_t x_stride = args.columns + 3;
  const std::vector<float> x = RandomValues(static_cast<size_t>(kXRows) * x_stride, 5);
  std::vector<float> y(static_cast<size_t>(kXRows) * kWeightRows);
  args.x = x.data();
  args.x_stride = x_stride;
  args.x_rows = kXRows;
  args.weight_rows = kWeightRows;
  args.y = y.data();
  args.y_stride = kWeightRows;
  ThreadPool pool(2);
  CanonicalMatVec(args, pool);
  for (int row = 0; row < kXRows; ++row) {
    for (int i = 0; i < kWeightRows; ++i) {
      const float expected =
          CanonicalDot<V>(args.columns, decoded.data() + static_cast<int64_t>(i) * args.columns,
                          x.data() + row * x_stride);
      ASSERT_EQ(std::bit_cast<uint32_t>(expected),
                std::bit_cast<uint32_t>(y[row * kWeightRows + i]))
          << "columns " << args.columns << ", row " << row << ", weight row " << i;
    }
  }
}

// Whole sweeps and segments, part of a sweep, less than one vector.
class CanonicalMatVecTest : public testing::TestWithParam<int> {
 protected:
  size_t weight_count() const { return static_cast<size_t>(kWeightRows) * GetParam(); }
};

TEST_P(CanonicalMatVecTest, Fp32RowsHaveTheCanonicalBits) {
  const std::vector<float> w = RandomValues(weight_count(), 1);
  ExpectCanonical<4>({.form = RowForm::kF32, .weights = w.data(), .columns = GetParam()}, w);
}

TEST_P(CanonicalMatVecTest, WideFp32RowsHaveTheCanonicalBits) {
  const std::vector<float> w = RandomValues(weight_count(), 2);
  ExpectCanonical<8>({.form = RowForm::kF32Wide, .weights = w.data(), .columns = GetParam()}, w);
}

template <class T>
void ExpectHalves(RowForm form, int columns, const std::function<T(float)>& round) {
  std::vector<T> w;
  std::vector<float> decoded;
  for (const float value : RandomValues(static_cast<size_t>(kWeightRows) * columns, 3)) {
    w.push_back(round(value));
    decoded.push_back(ToFloat(w.back()));
  }
  ExpectCanonical<8>({.form = form, .weights = w.data(), .columns = columns}, decoded);
}

TEST_P(CanonicalMatVecTest, Bf16RowsHaveTheCanonicalBits) {
  ExpectHalves<Bf16>(RowForm::kBf16, GetParam(), [](float value) { return ToBf16(value); });
}

TEST_P(CanonicalMatVecTest, Fp16RowsHaveTheCanonicalBits) {
  ExpectHalves<Fp16>(RowForm::kFp16, GetParam(), [](float value) { return ToFp16(value); });
}

TEST_P(CanonicalMatVecTest, Fp8RowsHaveTheCanonicalBits) {
  constexpr int kBlock = 16;
  const int columns = GetParam();
  const int blocks = columns / kBlock;
  Rng random(4);
  std::vector<Fp8E4m3> w(weight_count());
  for (Fp8E4m3& value : w) {
    do value.bits = static_cast<uint8_t>(random.Next());
    while ((value.bits & 0x7F) == 0x7F);  // not a number
  }
  const std::vector<float> scale =
      RandomValues(static_cast<size_t>((kWeightRows + kBlock - 1) / kBlock) * blocks, 6);
  std::vector<float> decoded;
  for (int row = 0; row < kWeightRows; ++row) {
    for (int k = 0; k < columns; ++k) {
      decoded.push_back(ToFloat(w[static_cast<size_t>(row) * columns + k]) *
                        scale[static_cast<size_t>(row / kBlock) * blocks + k / kBlock]);
    }
  }
  ExpectCanonical<16>({.form = RowForm::kFp8,
                       .weights = w.data(),
                       .fp8_scale = scale.data(),
                       .fp8_block = kBlock,
                       .columns = columns},
                      decoded);
}

INSTANTIATE_TEST_SUITE_P(Columns, CanonicalMatVecTest,
                         testing::Values(16, 48, 64, 256, 320, 1024, 4096, 4096 + 80),
                         [](const auto& columns) { return std::to_string(columns.param); });

TEST(SumOfSquares, HasTheCanonicalBits) {
  for (const int columns : {4, 60, 128, 1024, 1028, 5120}) {
    const std::vector<float> x = RandomValues(static_cast<size_t>(columns), 7);
    EXPECT_EQ(std::bit_cast<uint32_t>(CanonicalDot<4>(columns, x.data(), x.data())),
              std::bit_cast<uint32_t>(SumOfSquares(x.data(), columns)))
        << columns;
  }
}

}  // namespace
}  // namespace tp2
