// Canonical dot products of a few weight rows with a few fp32 rows by one warp: CanonicalMatVec of
// the CPU op set. A form says how a weight row is stored; V weights of it are one 16-byte load.
#pragma once

#include <cstdint>

#include "libcore/math/fp8.h"
#include "libcore/ops/cuda/ptx.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {

// bf16 or fp16 rows, V = 8.
struct Half16Form {
  static constexpr int kWidth = 8;
  struct Raw {
    uint4 bits;
  };

  const uint16_t* weights;
  bool is_fp16;
  int columns;

  __device__ Raw Load(int row, int k) const {
    return {*reinterpret_cast<const uint4*>(weights + static_cast<int64_t>(row) * columns + k)};
  }
  // Four weights, from element 4 * quarter.
  __device__ void Decode(const Raw& raw, int quarter, float (&w)[4]) const {
    const uint32_t low = quarter == 0 ? raw.bits.x : raw.bits.z;
    const uint32_t high = quarter == 0 ? raw.bits.y : raw.bits.w;
    w[0] = Widen(low & 0xFFFFu);
    w[1] = Widen(low >> 16);
    w[2] = Widen(high & 0xFFFFu);
    w[3] = Widen(high >> 16);
  }
  __device__ float Widen(uint32_t bits) const {
    const uint16_t half = static_cast<uint16_t>(bits);
    return is_fp16 ? ToFloat(Fp16{half}) : ToFloat(Bf16{half});
  }
};

inline constexpr int kE4m3Width = 16;  // V

// Two codes in the upper bytes of halves. Their fields moved to fp16's places are the value times
// 2^-8, exactly, subnormals too.
__device__ inline uint32_t SmallHalvesOfE4m3(uint32_t codes) {
  return (codes & 0x80008000u) | ((codes & 0x7F007F00u) >> 1);
}

// What DecodeE4m3 multiplies by. Scales are powers of two far from the ends of fp32's range (the
// loader has refused others), so every product is exact, in any order.
__device__ inline float E4m3Factor(float scale) {
#if __CUDA_ARCH__ >= 890
  return scale;
#else
  return scale * 256.0f;
#endif
}

// Four weights. The loader has refused NaN codes.
__device__ inline void DecodeE4m3(uint32_t four, float factor, float (&w)[4]) {
#if __CUDA_ARCH__ >= 890
  WidenHalves(HalvesOfE4m3(four), w[0], w[1]);
  WidenHalves(HalvesOfE4m3(four >> 16), w[2], w[3]);
#else
  WidenHalves(SmallHalvesOfE4m3(__byte_perm(four, 0, 0x1404)), w[0], w[1]);
  WidenHalves(SmallHalvesOfE4m3(__byte_perm(four, 0, 0x3424)), w[2], w[3]);
#endif
#pragma unroll
  for (int i = 0; i < 4; ++i) w[i] = w[i] * factor;
}

constexpr int PowerOfTwoAtLeast(int n) { return n <= 1 ? 1 : 2 * PowerOfTwoAtLeast((n + 1) / 2); }

// Sums of kOut weight rows with kRows rows of x; sum number o * kRows + r.
template <int kOut, int kRows>
inline constexpr int kSumCount = PowerOfTwoAtLeast(kOut* kRows);

// Adds one sweep: the lane's raw weights of kOut rows times x from element k.
template <int kOut, int kRows, class Form>
__device__ inline void AddRaw(const Form& form, const typename Form::Raw (&raw)[kOut],
                              const float* x, int64_t x_stride, int x_rows, int k,
                              float (&sums)[kSumCount<kOut, kRows>]) {
#pragma unroll
  for (int quarter = 0; quarter < Form::kWidth / 4; ++quarter) {
    float4 values[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      values[r] =
          *reinterpret_cast<const float4*>(x + min(r, x_rows - 1) * x_stride + k + 4 * quarter);
    }
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
      float w[4];
      form.Decode(raw[o], quarter, w);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float& sum = sums[o * kRows + r];
        sum = fmaf(w[0], values[r].x, sum);
        sum = fmaf(w[1], values[r].y, sum);
        sum = fmaf(w[2], values[r].z, sum);
        sum = fmaf(w[3], values[r].w, sum);
      }
    }
  }
}

}  // namespace tp2::cuda
