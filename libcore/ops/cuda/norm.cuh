// RMS norm of a row by one block.
#pragma once

#include "libcore/math/transcendental.h"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {

// One segment of the canonical sum of squares (V = 4) by one warp; columns are a multiple of 128,
// so a sweep is whole or absent.
__device__ inline float SegmentSquares(const float* x, int begin, int end) {
  float sum = 0.0f;
#pragma unroll 8
  for (int k = begin + static_cast<int>(threadIdx.x) % 32 * 4; k < end; k += kReduceLanes * 4) {
    const float4 v = *reinterpret_cast<const float4*>(x + k);
    sum = fmaf(v.x, v.x, sum);
    sum = fmaf(v.y, v.y, sum);
    sum = fmaf(v.z, v.z, sum);
    sum = fmaf(v.w, v.w, sum);
  }
  return WarpButterfly(sum);
}

// 1 / sqrt(mean(x^2) + eps) in every thread. segments: shared [kMaxSegments].
__device__ inline float BlockInverseRms(const float* x, int columns, float eps, float* segments) {
  const int count = (columns + kReduceSegment<4> - 1) / kReduceSegment<4>;
  const int warps = static_cast<int>(blockDim.x) / 32;
  for (int s = static_cast<int>(threadIdx.x) / 32; s < count; s += warps) {
    const int begin = s * kReduceSegment<4>;
    const float sum = SegmentSquares(x, begin, min(columns, begin + kReduceSegment<4>));
    if (threadIdx.x % 32 == 0) segments[s] = sum;
  }
  __syncthreads();
  float total = segments[0];
  for (int s = 1; s < count; ++s) total = total + segments[s];
  return Rsqrt(total / static_cast<float>(columns) + eps);
}

// Four elements from k of weight * (x * inverse).
__device__ inline float4 Normed(const DeviceHalf16& weight, int k, const float4& v, float inverse) {
  return {Half16At(weight, k) * (v.x * inverse), Half16At(weight, k + 1) * (v.y * inverse),
          Half16At(weight, k + 2) * (v.z * inverse), Half16At(weight, k + 3) * (v.w * inverse)};
}

__device__ inline void PrefetchWeights(const DeviceHalf16& weight) {
  PrefetchSpan(weight.bits, static_cast<int>(sizeof(uint16_t)) * weight.columns);
}

}  // namespace tp2::cuda
