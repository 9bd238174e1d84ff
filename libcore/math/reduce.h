// The canonical reduction: the one order in which this project adds fp32 numbers.
//
// A reduction over n elements has one parameter V, the elements of one 16-byte load of the
// operand's type (fp32 4, 16-bit 8, fp8 16; 1 for values that are not loaded as vectors). Element k
// belongs to segment k / (256 V), and inside it to lane (k / V) mod 32. A lane adds its elements in
// ascending k, starting from 0. The 32 lanes of a segment meet in a butterfly of distances 16, 8,
// 4, 2, 1. Segment sums are added in ascending order, starting from the first. A warp, a vector
// unit and a plain loop can all do exactly this, so all of them give the same bits.
#pragma once

#include <cmath>

#include "libcore/math/hd.h"

namespace tp2 {

inline constexpr int kReduceLanes = 32;
inline constexpr int kSweepsPerSegment = 8;

template <int V>
inline constexpr int kReduceSegment = kReduceLanes* V* kSweepsPerSegment;

// BITS: ((l + l^16) + ...) with distances 16, 8, 4, 2, 1. Destroys `lanes`.
TP2_HD inline float ButterflySum(float* lanes) {
  for (int distance = kReduceLanes / 2; distance > 0; distance /= 2) {
    for (int lane = 0; lane < distance; ++lane) lanes[lane] = lanes[lane] + lanes[lane + distance];
  }
  return lanes[0];
}

// Reduces accumulate(lane_sum, k) -> new lane_sum over k = 0..n-1 in the canonical order.
template <int V, class Accumulate>
TP2_HD inline float CanonicalReduce(int n, Accumulate accumulate) {
  float total = 0.0f;
  for (int begin = 0; begin < n; begin += kReduceSegment<V>) {
    const int end = begin + kReduceSegment<V> < n ? begin + kReduceSegment<V> : n;
    float lanes[kReduceLanes] = {};
    for (int k = begin; k < end; ++k) {
      float& lane = lanes[(k / V) % kReduceLanes];
      lane = accumulate(lane, k);
    }
    const float segment = ButterflySum(lanes);
    total = begin == 0 ? segment : total + segment;
  }
  return total;
}

// sum_k a[k] * b[k], fused multiply-add inside a lane.
template <int V>
TP2_HD inline float CanonicalDot(int n, const float* a, const float* b) {
  return CanonicalReduce<V>(n, [a, b](float sum, int k) { return std::fma(a[k], b[k], sum); });
}

}  // namespace tp2
