// The 128-point Hadamard transform (Sylvester order, entry (i, j) negative when popcount(i & j) is
// odd), not normalised: applying it twice multiplies by 128.
#pragma once

#include "libcore/math/hd.h"

namespace tp2 {

inline constexpr int kHadamardPoints = 128;

// 1 / sqrt(128) as the format's kernels have it: fp32 bits 0x3DB504F3.
inline constexpr float kHadamardNorm = 0x1.6A09E6p-4f;

// In place on values[0 .. 127].
// BITS: fp32 butterflies (a + b, a - b), a at the lower index, strides 1, 2, 4, ..., 64 in this
// order. Butterflies of one stride touch disjoint pairs, so their order cannot matter.
TP2_HD inline void Fwht128(float* values) {
  for (int stride = 1; stride < kHadamardPoints; stride *= 2) {
    for (int begin = 0; begin < kHadamardPoints; begin += 2 * stride) {
      for (int i = begin; i < begin + stride; ++i) {
        const float a = values[i];
        const float b = values[i + stride];
        values[i] = a + b;
        values[i + stride] = a - b;
      }
    }
  }
}

}  // namespace tp2
