// Canonical dot products of a few weight rows with a few fp32 rows by one warp: CanonicalMatVec of
// the CPU op set. A form says how a weight row is stored; V weights of it are one 16-byte load.
#pragma once

#include <cstdint>

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
