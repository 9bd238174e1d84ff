// Canonical dot products (math/reduce.h) of many weight rows with a few fp32 rows, vectorised over
// the 32 lanes of the canonical order. Same bits as CanonicalDot<V> on the decoded weights, for
// every vector width and thread count.
#pragma once

#include <cstdint>

#include "libcore/base/thread_pool.h"

namespace tp2 {

// How a weight row is stored, and with it the canonical width V (8 for kF32Wide: fp32 values
// standing in for 16-bit ones in the test variant without storage roundings).
enum class RowForm { kF32, kF32Wide, kBf16, kFp16, kFp8 };

struct CanonicalMatVecArgs {
  RowForm form = RowForm::kF32;
  const void* weights = nullptr;     // [weight_rows, columns], contiguous
  const float* fp8_scale = nullptr;  // kFp8: [weight_rows / fp8_block, columns / fp8_block]
  int fp8_block = 0;
  int weight_rows = 0;
  int columns = 0;           // a multiple of the form's V
  const float* x = nullptr;  // [x_rows, columns], row stride x_stride
  int64_t x_stride = 0;
  int x_rows = 0;
  float* y = nullptr;  // y[x_row * y_stride + weight_row]
  int64_t y_stride = 0;
};

void CanonicalMatVec(const CanonicalMatVecArgs& args, ThreadPool& pool);

// sum of x[k]^2 over k < columns (a multiple of 4), V = 4; same bits as CanonicalDot<4>(columns, x,
// x).
float SumOfSquares(const float* x, int columns);

// out[d] = sum_j weights[j] * rows[j][d], ascending j from 0, fused multiply-add.
struct WeightedSumArgs {
  const float* weights = nullptr;  // [row_count]
  const float* rows = nullptr;     // [row_count, columns]
  int row_count = 0;
  int columns = 0;
  float* out = nullptr;  // [columns]
};

void WeightedSum(const WeightedSumArgs& args);

}  // namespace tp2
