// Device helpers: the canonical reduction by a warp or a block, the 128-point transform across a
// warp, widening loads, each with the bits of its host twin in libcore/math; a span asked for
// ahead, the last of several blocks.
#pragma once

#include <cstdint>

#include "libcore/math/bf16.h"
#include "libcore/math/fp16.h"
#include "libcore/math/hadamard.h"
#include "libcore/math/reduce.h"
#include "libcore/ops/cuda/device_types.h"
#include "libcore/ops/cuda/ptx.cuh"

namespace tp2::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// BITS: ButterflySum of math/reduce.h; every lane gets the result, because a + b == b + a.
__device__ inline float WarpButterfly(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = value + __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

// N sums across the warp at once, N a power of two up to 32, with half of the exchanges per step
// that N butterflies would need: lanes split the sums among themselves. Returns sum number
// WarpSumIndex<N>(); lanes that WarpSumIsMain<N>() hold each sum once.
// BITS: every sum meets in the tree of WarpButterfly.
template <int N, int kDistance = 16>
__device__ inline float WarpSumMany(const float (&v)[N]) {
  if constexpr (kDistance == 0) {
    return v[0];
  } else if constexpr (N == 1) {
    const float sum[1] = {v[0] + __shfl_xor_sync(kAllLanes, v[0], kDistance)};
    return WarpSumMany<1, kDistance / 2>(sum);
  } else {
    const bool is_upper = (threadIdx.x & kDistance) != 0;
    float sums[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float sent = is_upper ? v[i] : v[i + N / 2];
      const float kept = is_upper ? v[i + N / 2] : v[i];
      sums[i] = kept + __shfl_xor_sync(kAllLanes, sent, kDistance);
    }
    return WarpSumMany<N / 2, kDistance / 2>(sums);
  }
}

template <int N>
__device__ inline int WarpSumIndex() {
  int index = 0, distance = 16;
#pragma unroll
  for (int half = N / 2; half >= 1; half /= 2) {
    if ((threadIdx.x & distance) != 0) index += half;
    distance /= 2;
  }
  return index;
}

template <int N>
__device__ inline bool WarpSumIsMain() {
  return threadIdx.x % (32 / N) == 0;
}

__device__ inline float WarpMax(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

// One segment of CanonicalReduce<V> over elements [begin, end) by one warp. `accumulate(sum, k)`.
template <int V, class Accumulate>
__device__ inline float WarpSegment(int begin, int end, Accumulate accumulate) {
  const int lane = threadIdx.x % 32;
  float sum = 0.0f;
  for (int base = begin + lane * V; base < end; base += kReduceLanes * V) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (base + v < end) sum = accumulate(sum, base + v);
    }
  }
  return WarpButterfly(sum);
}

// CanonicalReduce<V> by one warp; every lane gets the result.
template <int V, class Accumulate>
__device__ inline float WarpReduce(int n, Accumulate accumulate) {
  float total = 0.0f;
  for (int begin = 0; begin < n; begin += kReduceSegment<V>) {
    const float segment = WarpSegment<V>(begin, min(n, begin + kReduceSegment<V>), accumulate);
    total = begin == 0 ? segment : total + segment;
  }
  return total;
}

inline constexpr int kMaxSegments = 64;

// CanonicalReduce<V> by a block: one warp per segment, then the segments in ascending order. Every
// thread gets the result. segments: shared [kMaxSegments]; n <= kMaxSegments segments.
template <int V, class Accumulate>
__device__ inline float BlockReduce(int n, float* segments, Accumulate accumulate) {
  const int warps = blockDim.x / 32;
  const int count = (n + kReduceSegment<V> - 1) / kReduceSegment<V>;
  for (int s = threadIdx.x / 32; s < count; s += warps) {
    const int begin = s * kReduceSegment<V>;
    const float sum = WarpSegment<V>(begin, min(n, begin + kReduceSegment<V>), accumulate);
    if (threadIdx.x % 32 == 0) segments[s] = sum;
  }
  __syncthreads();
  float total = segments[0];
  for (int s = 1; s < count; ++s) total = total + segments[s];
  __syncthreads();
  return total;
}

// BITS: Fwht128 of math/hadamard.h on element 4 * lane + j of each lane's v[j].
__device__ inline void WarpFwht128(float (&v)[4]) {
  const float a0 = v[0] + v[1], a1 = v[0] - v[1], a2 = v[2] + v[3], a3 = v[2] - v[3];
  v[0] = a0 + a2;
  v[1] = a1 + a3;
  v[2] = a0 - a2;
  v[3] = a1 - a3;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    // Exactly other - v in the upper lane and other + v in the lower, without a selection.
    const float sign = (threadIdx.x & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[j] = fmaf(sign, v[j], __shfl_xor_sync(kAllLanes, v[j], distance));
    }
  }
}

__device__ inline float Half16At(const DeviceHalf16& view, int64_t index) {
  const uint16_t bits = view.bits[index];
  return view.is_fp16 ? ToFloat(Fp16{bits}) : ToFloat(Bf16{bits});
}

// Four neighbouring bf16 values, as they are loaded.
__device__ inline float4 FourBf16(const uint2& raw) {
  return {ToFloat(Bf16{static_cast<uint16_t>(raw.x & 0xFFFFu)}),
          ToFloat(Bf16{static_cast<uint16_t>(raw.x >> 16)}),
          ToFloat(Bf16{static_cast<uint16_t>(raw.y & 0xFFFFu)}),
          ToFloat(Bf16{static_cast<uint16_t>(raw.y >> 16)})};
}

// Asks for the cache lines of a span, by all threads.
__device__ inline void PrefetchSpan(const void* begin, int bytes) {
  constexpr int kLineBytes = 128;
  const auto* const lines = static_cast<const char*>(begin);
#pragma unroll 1
  for (int at = kLineBytes * static_cast<int>(threadIdx.x); at < bytes;
       at += kLineBytes * static_cast<int>(blockDim.x)) {
    Prefetch(lines + at);
  }
}

// Whether the calling thread is the last of `count`; the last one zeroes the word for the next
// launch. What CountArrival says of memory holds.
__device__ inline bool IsLastArrival(unsigned* arrivals, unsigned count) {
  const bool is_last = CountArrival(arrivals) + 1 == count;
  if (is_last) *arrivals = 0;
  return is_last;
}

// Keeps the first error. The word lies in host memory: only a failure costs a visit.
__device__ inline void LatchError(int* word, KernelError error) {
  volatile int* latch = word;
  if (*latch == 0) *latch = static_cast<int>(error);
}

__device__ inline bool IsFinite(float value) {
  return (__float_as_uint(value) & 0x7F800000u) != 0x7F800000u;
}

}  // namespace tp2::cuda
