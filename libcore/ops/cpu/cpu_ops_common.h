// Small helpers that several CPU operations share.
#pragma once

#include <cstdint>
#include <vector>

#include "libcore/checkpoint/weights.h"
#include "libcore/math/transcendental.h"
#include "libcore/ops/cpu/canonical_matvec.h"

namespace tp2 {

// 1 / sqrt(mean(x^2) + eps), canonical with V = 4.
inline float InverseRms(const float* x, int columns, float eps) {
  return Rsqrt(SumOfSquares(x, columns) / static_cast<float>(columns) + eps);
}

inline RowForm FormOf(const Half16View& view) {
  return view.is_fp16 ? RowForm::kFp16 : RowForm::kBf16;
}

}  // namespace tp2
