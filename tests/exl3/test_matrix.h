// Matrices and rows for the EXL3 tests, and the definition of the exact integer path written as
// plainly as possible.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "libcore/base/rng.h"
#include "libcore/base/thread_pool.h"
#include "libcore/exl3/decode.h"
#include "libcore/exl3/linear.h"
#include "libcore/exl3/matrix.h"
#include "libcore/math/exl3_codebook.h"

namespace tp2::exl3 {

struct TestMatrix {
  int k, n, bits;
  Codebook codebook = Codebook::kMul1;
  std::vector<uint16_t> trellis;
  std::vector<Fp16> suh, svh;

  MatrixView view() const {
    return {.k = k,
            .n = n,
            .bits = bits,
            .codebook = codebook,
            .trellis = trellis.data(),
            .tile_row_pitch = static_cast<ptrdiff_t>(n / kTile) * kTile * bits,
            .suh = suh.data(),
            .svh = svh.data()};
  }
};

inline Fp16 RandomScale(Rng& rng, float unit) {
  const float magnitude = 0.5f + static_cast<float>(rng.Below(512)) / 512.0f;
  return ToFp16(rng.Below(2) == 0 ? magnitude * unit : -magnitude * unit);
}

inline TestMatrix RandomMatrix(int k, int n, int bits, Codebook codebook, uint64_t seed) {
  TestMatrix matrix{k, n, bits, codebook, {}, {}, {}};
  Rng rng(seed);
  matrix.trellis.resize(static_cast<size_t>(k) * n / 16 * bits);
  for (uint16_t& unit : matrix.trellis) unit = static_cast<uint16_t>(rng.Next());
  for (int i = 0; i < k; ++i) matrix.suh.push_back(RandomScale(rng, 1.0f / 32));
  for (int i = 0; i < n; ++i) matrix.svh.push_back(RandomScale(rng, 1.0f));
  return matrix;
}

// About N(0, 1): sums of twelve uniform values.
inline std::vector<float> RandomRows(int64_t values, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x(static_cast<size_t>(values));
  for (float& value : x) {
    float sum = 0.0f;
    for (int i = 0; i < 12; ++i) sum += 0.5f * rng.Signed();
    value = sum;
  }
  return x;
}

inline std::vector<float> RunLinear(const MatrixView& matrix, const std::vector<float>& x, int rows,
                                    ThreadPool& pool) {
  std::vector<float> y(static_cast<size_t>(rows) * matrix.n, -1.0f);
  Linear({.matrix = matrix,
          .x = x.data(),
          .x_stride = matrix.k,
          .rows = rows,
          .y = y.data(),
          .y_stride = matrix.n},
         pool);
  return y;
}

inline std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

// The transform by its recursive definition: first the pairs, then pairs of pairs, ...
inline void PlainTransform(float* v) {
  for (int stride = 1; stride < 128; stride *= 2) {
    for (int i = 0; i < 128; ++i) {
      if (i & stride) continue;
      const float a = v[i], b = v[i + stride];
      v[i] = a + b;
      v[i + stride] = a - b;
    }
  }
}

// linear.h's definition of one row, word by word, on a grid of mul1 numerators 887 b - 452608.
inline std::vector<float> DefinedRow(const MatrixView& matrix, const std::vector<int32_t>& grid,
                                     const float* x) {
  std::vector<float> r(static_cast<size_t>(matrix.k));
  for (int i = 0; i < matrix.k; ++i) r[i] = x[i] * ToFloat(matrix.suh[i]);
  for (int i = 0; i < matrix.k; i += 128) PlainTransform(&r[i]);
  float amax = 0.0f;
  for (const float value : r) amax = std::max(amax, std::fabs(value));
  std::vector<int64_t> totals(static_cast<size_t>(matrix.n));
  for (int i = 0; i < matrix.k; ++i) {
    const float scaled = r[i] * (32258.0f / amax);
    const int64_t v = amax < 0x1p-100f ? 0 : std::llrint(scaled);
    for (int j = 0; j < matrix.n; ++j) totals[j] += v * grid[static_cast<size_t>(i) * matrix.n + j];
  }
  std::vector<float> y(totals.begin(), totals.end());
  for (int j = 0; j < matrix.n; j += 128) PlainTransform(&y[j]);
  for (int j = 0; j < matrix.n; ++j) {
    y[j] = y[j] * (amax / 32258.0f * 0x1p-24f) * ToFloat(matrix.svh[j]);
  }
  return y;
}

inline std::vector<int32_t> NumeratorGrid(const MatrixView& matrix) {
  std::vector<int32_t> grid;
  for (const double weight : DecodeGrid(matrix, WeightForm::kExact)) {
    grid.push_back(static_cast<int32_t>(weight * 0x1p17));
  }
  return grid;
}

// sqrt(sum (y - exact)^2 / sum exact^2) of y = x W in float64.
inline double RelativeError(const MatrixView& matrix, WeightForm form, const std::vector<float>& x,
                            int rows, const std::vector<float>& y) {
  const std::vector<double> dense = DenseWeights(matrix, form);
  double error = 0.0, power = 0.0;
  for (int row = 0; row < rows; ++row) {
    std::vector<double> exact(static_cast<size_t>(matrix.n));
    for (int i = 0; i < matrix.k; ++i) {
      const double value = x[static_cast<size_t>(row) * matrix.k + i];
      for (int j = 0; j < matrix.n; ++j) {
        exact[j] += value * dense[static_cast<size_t>(i) * matrix.n + j];
      }
    }
    for (int j = 0; j < matrix.n; ++j) {
      const double difference = y[static_cast<size_t>(row) * matrix.n + j] - exact[j];
      error += difference * difference;
      power += exact[j] * exact[j];
    }
  }
  return std::sqrt(error / power);
}

}  // namespace tp2::exl3
