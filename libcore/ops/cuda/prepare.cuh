// The input transform of a product on the integer path: sign and scale, Hadamard transform,
// quantization of one row by one block.
#pragma once

#include "libcore/math/exl3_codebook.h"
#include "libcore/math/swiglu.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {

inline constexpr int kMaxPrepareWarps = 32;
inline constexpr int kMaxQuantum = 32258;  // 127 * 254
// Transformed inputs that a block keeps in shared memory; those past them are computed twice.
inline constexpr int kHeldInputs = 16384;

// Threads and shared memory of a block for rows of k inputs: a warp for every 128-block, or as few
// warps as need the same number of rounds.
inline unsigned PrepareThreads(int k) {
  const int blocks = k / 128;
  const int rounds = (blocks + kMaxPrepareWarps - 1) / kMaxPrepareWarps;
  return static_cast<unsigned>(32 * ((blocks + rounds - 1) / rounds));
}
inline size_t PrepareSharedBytes(int k) {
  return sizeof(float) * (k < kHeldInputs ? k : kHeldInputs);
}

// What a product multiplies: a row in memory, or a row with the operation in front of the product
// still to be done.
struct PlainRow {
  const float* x;

  __device__ float4 Load(int k) const { return *reinterpret_cast<const float4*>(x + k); }
};

// SwiGLU(gate, up) * weight.
struct GatedRow {
  const float* gate;
  const float* up;
  float weight, limit;

  __device__ float4 Load(int k) const {
    float4 v = *reinterpret_cast<const float4*>(gate + k);
    const float4 u = *reinterpret_cast<const float4*>(up + k);
    v.x = SwiGlu(v.x, u.x, limit) * weight;
    v.y = SwiGlu(v.y, u.y, limit) * weight;
    v.z = SwiGlu(v.z, u.z, limit) * weight;
    v.w = SwiGlu(v.w, u.w, limit) * weight;
    return v;
  }
};

// r = FWHT(x * suh), four elements per lane of one 128-block.
template <class Row>
__device__ float4 TransformBlock(const Row& row, const Fp16* suh, int block) {
  const int k = block * 128 + static_cast<int>(threadIdx.x) % 32 * 4;
  const float4 values = row.Load(k);
  const uint2 signs = *reinterpret_cast<const uint2*>(suh + k);
  float r[4] = {values.x * ToFloat(Fp16{static_cast<uint16_t>(signs.x & 0xFFFFu)}),
                values.y * ToFloat(Fp16{static_cast<uint16_t>(signs.x >> 16)}),
                values.z * ToFloat(Fp16{static_cast<uint16_t>(signs.y & 0xFFFFu)}),
                values.w * ToFloat(Fp16{static_cast<uint16_t>(signs.y >> 16)})};
  WarpFwht128(r);
  return {r[0], r[1], r[2], r[3]};
}

// v = 254 * hi + lo with |lo| <= 127, for |v| <= 32258. Unsigned, which divides in fewer
// instructions.
__device__ inline int HighPart(int v) {
  return static_cast<int>(static_cast<uint32_t>(v + 127 + 254 * 128) / 254u) - 128;
}

// The nearest integer, ties to even, for |x| < 2^22: an addition that leaves no fraction bits.
__device__ inline int NearestInt(float x) {
  constexpr float kOneAndAHalf = 0x1.8p23f;
  return static_cast<int>(__float_as_uint(x + kOneAndAHalf) - __float_as_uint(kOneAndAHalf));
}

struct RowPlace {
  int item;   // in the workspace
  int group;  // in the workspace
  int row;    // inside the group, 0 .. 3
};

// Writes the int8 parts of four neighbouring inputs per lane, of 128 in the warp, where the tensor
// core's lanes read them. A word holds two inputs of each half of a k-tile, so lanes of the two
// halves swap: the first's writes words of high parts, the second's of low parts.
__device__ inline void StoreQuanta(uint32_t* quanta, const RowPlace& place, int k_tiles, int k,
                                   const int (&v)[4]) {
  const int in_tile = k % 16;
  const bool is_second = in_tile >= 8;
  uint32_t high = 0, low = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int part = HighPart(v[j]);
    high |= (part & 0xFFu) << (8 * j);
    low |= ((v[j] - 254 * part) & 0xFFu) << (8 * j);
  }
  const uint32_t other = __shfl_xor_sync(kAllLanes, is_second ? high : low, 2);
  const uint32_t first = is_second ? other : high, second = is_second ? low : other;
  uint32_t* words = quanta + static_cast<int64_t>(place.group) * k_tiles * 32 + k / 64 * 128 +
                    k / 16 % 4 + 4 * (8 * place.row + in_tile % 8 / 2 + (is_second ? 4 : 0));
  words[0] = __byte_perm(first, second, 0x5410);
  words[4] = __byte_perm(first, second, 0x7632);
}

// Sums over the block's warps of a value that all lanes of a warp hold; valid in warp 0. shared:
// [kMaxPrepareWarps], read behind a barrier.
__device__ inline int SumOfWarps(const int* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warps = static_cast<int>(blockDim.x) / 32;
  return __reduce_add_sync(kAllLanes, lane < warps ? shared[lane] : 0);
}

// One item of the integer path by a block of PrepareThreads(k). held: shared,
// PrepareSharedBytes(k). Loops are not unrolled: a block runs this once, and what it would gain it
// loses to the fetch of the instructions.
template <class Row>
__device__ void PrepareInteger(const LinearJob& job, const LinearWorkspace& work,
                               const RowPlace& place, const Row& row, float4* held) {
  __shared__ unsigned int warp_largest[kMaxPrepareWarps];
  __shared__ int warp_low[kMaxPrepareWarps], warp_high[kMaxPrepareWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int blocks = job.matrix.k / 128;
  // Over bit patterns, so that a NaN counts as larger than infinity.
  unsigned int largest = 0;
#pragma unroll 1
  for (int block = warp; block < blocks; block += warps) {
    const float4 r = TransformBlock(row, job.matrix.suh, block);
    if (block < kHeldInputs / 128) held[block * 32 + lane] = r;
    const unsigned int a =
        max(__float_as_uint(r.x) & 0x7FFFFFFFu, __float_as_uint(r.y) & 0x7FFFFFFFu);
    const unsigned int b =
        max(__float_as_uint(r.z) & 0x7FFFFFFFu, __float_as_uint(r.w) & 0x7FFFFFFFu);
    largest = max(largest, max(a, b));
  }
  largest = __reduce_max_sync(kAllLanes, largest);
  if (lane == 0) warp_largest[warp] = largest;
  __syncthreads();
  largest = __reduce_max_sync(kAllLanes, lane < warps ? warp_largest[lane] : 0u);
  const float amax = __uint_as_float(largest);
  const bool is_finite = IsFinite(amax);
  const float factor =
      is_finite && amax >= 0x1p-100f ? static_cast<float>(kMaxQuantum) / amax : 0.0f;
  // A lane's sum fits int32 while k <= 2^19: at most 4096 blocks / 32 warps * 4 * 32258.
  int sum = 0;
#pragma unroll 1
  for (int block = warp; block < blocks; block += warps) {
    const float4 r = block < kHeldInputs / 128 ? held[block * 32 + lane]
                                               : TransformBlock(row, job.matrix.suh, block);
    int v[4] = {NearestInt(r.x * factor), NearestInt(r.y * factor), NearestInt(r.z * factor),
                NearestInt(r.w * factor)};
    if (!is_finite) v[0] = v[1] = v[2] = v[3] = 0;
    sum += v[0] + v[1] + v[2] + v[3];
    StoreQuanta(work.quanta, place, job.matrix.k / 16, block * 128 + 4 * lane, v);
  }
  const int low = __reduce_add_sync(kAllLanes, sum & 0xFFFF);
  const int high = __reduce_add_sync(kAllLanes, sum >> 16);
  if (lane == 0) {
    warp_low[warp] = low;
    warp_high[warp] = high;
  }
  __syncthreads();
  if (warp != 0) return;
  const int all_low = SumOfWarps(warp_low), all_high = SumOfWarps(warp_high);
  if (lane != 0) return;
  work.row_sums[place.item] = all_high * 65536LL + all_low;
  work.scales[place.item] =
      is_finite ? amax / static_cast<float>(kMaxQuantum) * 0x1p-24f : __uint_as_float(0x7FC00000u);
}

// Where item `item` of a job lies.
__device__ inline RowPlace PlaceOf(const LinearJob& job, int item) {
  return {job.first_item + item, job.first_group + item / kRowsPerGroup, item % kRowsPerGroup};
}

// The signs of the matrix, which no kernel in front writes.
__device__ inline void PrefetchSigns(const DeviceMatrix& matrix) {
  PrefetchSpan(matrix.suh, static_cast<int>(sizeof(Fp16)) * matrix.k);
}

}  // namespace tp2::cuda
