// The input transform of a product: sign and scale, Hadamard transform, quantization of one row by
// one block.
#pragma once

#include "libcore/math/exl3_codebook.h"
#include "libcore/math/swiglu.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {

inline constexpr int kPrepareThreads = 512;
inline constexpr int kPrepareWarps = kPrepareThreads / 32;
inline constexpr int kMaxQuantum = 32258;  // 127 * 254

// What a product multiplies: a row in memory, or a row with the operation in front of the product
// still to be done.
struct PlainRow {
  const float* x;

  __device__ float4 Load(int k) const { return *reinterpret_cast<const float4*>(x + k); }
};

// SwiGLU(gate, up) * weight; without `up` the row itself.
struct GatedRow {
  const float* gate;
  const float* up;
  float weight, limit;

  __device__ float4 Load(int k) const {
    float4 v = *reinterpret_cast<const float4*>(gate + k);
    if (up == nullptr) return v;
    const float4 u = *reinterpret_cast<const float4*>(up + k);
    v.x = SwiGlu(v.x, u.x, limit) * weight;
    v.y = SwiGlu(v.y, u.y, limit) * weight;
    v.z = SwiGlu(v.z, u.z, limit) * weight;
    v.w = SwiGlu(v.w, u.w, limit) * weight;
    return v;
  }
};

// Four elements per lane of one 128-block: inputs and signs, then r = FWHT(x * suh).
struct BlockInputs {
  float4 values;
  uint2 signs;

  template <class Row>
  __device__ void Load(const Row& row, const Fp16* suh, int block) {
    const int k = block * 128 + static_cast<int>(threadIdx.x) % 32 * 4;
    values = row.Load(k);
    signs = *reinterpret_cast<const uint2*>(suh + k);
  }
  __device__ void Transform(float (&r)[4]) const {
    r[0] = values.x * ToFloat(Fp16{static_cast<uint16_t>(signs.x & 0xFFFFu)});
    r[1] = values.y * ToFloat(Fp16{static_cast<uint16_t>(signs.x >> 16)});
    r[2] = values.z * ToFloat(Fp16{static_cast<uint16_t>(signs.y & 0xFFFFu)});
    r[3] = values.w * ToFloat(Fp16{static_cast<uint16_t>(signs.y >> 16)});
    WarpFwht128(r);
  }
};

// v = 254 * hi + lo with |lo| <= 127, for |v| <= 32258.
__device__ inline int HighPart(int v) { return (v + 127 + 254 * 128) / 254 - 128; }

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

// The transformed row, spread over the block's warps: warp w holds 128-blocks w, w + kPrepareWarps,
// ... Blocks past what registers hold are computed again when they are read.
template <class Row>
class TransformedRow {
 public:
  __device__ TransformedRow(const Row& row, const DeviceMatrix& matrix)
      : row_(row), suh_(matrix.suh), block_count_(matrix.k / 128) {
    BlockInputs inputs[kHeldBlocks];
#pragma unroll
    for (int i = 0; i < kHeldBlocks; ++i) {
      if (BlockOf(i) < block_count_) inputs[i].Load(row_, suh_, BlockOf(i));
    }
#pragma unroll
    for (int i = 0; i < kHeldBlocks; ++i) {
      if (BlockOf(i) < block_count_) inputs[i].Transform(held_[i]);
    }
  }

  // body(block, r) for every block of this warp.
  template <class Body>
  __device__ void ForEachBlock(Body body) const {
#pragma unroll
    for (int i = 0; i < kHeldBlocks; ++i) {
      if (BlockOf(i) < block_count_) body(BlockOf(i), held_[i]);
    }
    for (int i = kHeldBlocks; BlockOf(i) < block_count_; ++i) {
      BlockInputs inputs;
      inputs.Load(row_, suh_, BlockOf(i));
      float r[4];
      inputs.Transform(r);
      body(BlockOf(i), r);
    }
  }

 private:
  static constexpr int kHeldBlocks = 4;

  __device__ static int BlockOf(int i) {
    return static_cast<int>(threadIdx.x) / 32 + i * kPrepareWarps;
  }

  Row row_;
  const Fp16* suh_;
  int block_count_;
  float held_[kHeldBlocks][4];
};

template <class Row>
__device__ void PrepareInteger(const LinearJob& job, const LinearWorkspace& work,
                               const RowPlace& place, const Row& source) {
  __shared__ unsigned int largest;
  __shared__ long long warp_sums[kPrepareWarps];
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  const TransformedRow<Row> row(source, job.matrix);
  // Over bit patterns, so that a NaN counts as larger than infinity.
  unsigned int mine = 0;
  row.ForEachBlock([&mine](int, const float(&r)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) mine = max(mine, __float_as_uint(r[j]) & 0x7FFFFFFFu);
  });
  mine = __reduce_max_sync(kAllLanes, mine);
  if (threadIdx.x % 32 == 0) atomicMax(&largest, mine);
  __syncthreads();
  const float amax = __uint_as_float(largest);
  const bool is_finite = IsFinite(amax);
  const float factor =
      is_finite && amax >= 0x1p-100f ? static_cast<float>(kMaxQuantum) / amax : 0.0f;
  long long sum = 0;
  const int k_tiles = job.matrix.k / 16;
  row.ForEachBlock([&](int block, const float(&r)[4]) {
    int v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[j] = __float2int_rn((is_finite ? r[j] : 0.0f) * factor);
      sum += v[j];
    }
    StoreQuanta(work.quanta, place, k_tiles, block * 128 + static_cast<int>(threadIdx.x) % 32 * 4,
                v);
  });
  // A lane's sum fits int32 while k <= 2^19: at most 4096 blocks / 32 warps * 4 * 32258.
  const int warp_low = __reduce_add_sync(kAllLanes, static_cast<int>(sum & 0xFFFF));
  const int warp_high = __reduce_add_sync(kAllLanes, static_cast<int>(sum >> 16));
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = warp_high * 65536LL + warp_low;
  __syncthreads();
  if (threadIdx.x == 0) {
    long long row_sum = 0;
#pragma unroll
    for (int w = 0; w < kPrepareWarps; ++w) row_sum += warp_sums[w];
    work.row_sums[place.item] = row_sum;
    work.scales[place.item] = is_finite ? amax / static_cast<float>(kMaxQuantum) * 0x1p-24f
                                        : __uint_as_float(0x7FC00000u);
  }
}

// [k] of one item of the fp16 path.
__device__ inline float* HalvesOf(const LinearJob& job, const LinearWorkspace& work, int item) {
  return work.halves +
         (static_cast<int64_t>(job.first_group) * kRowsPerGroup + item) * job.matrix.k;
}

template <class Row>
__device__ void PrepareHalf(const LinearJob& job, const LinearWorkspace& work,
                            const RowPlace& place, int item, const Row& source) {
  __shared__ bool is_bad;
  if (threadIdx.x == 0) is_bad = false;
  __syncthreads();
  float* to = HalvesOf(job, work, item);
  TransformedRow<Row>(source, job.matrix).ForEachBlock([to](int block, const float(&r)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float a = ToFloat(ToFp16(r[j] * kHadamardNorm));
      to[block * 128 + threadIdx.x % 32 * 4 + j] = a;
      if (!IsFinite(a)) is_bad = true;
    }
  });
  __syncthreads();
  if (threadIdx.x == 0) {
    work.scales[place.item] = is_bad ? __uint_as_float(0x7FC00000u) : kHadamardNorm;
  }
}

// Item `item` of a job by a block of kPrepareThreads.
template <class Row>
__device__ void PrepareItem(const LinearJob& job, const LinearWorkspace& work, int item,
                            const Row& source) {
  const RowPlace place = {job.first_item + item, job.first_group + item / kRowsPerGroup,
                          item % kRowsPerGroup};
  if (job.matrix.codebook == kCodebookMul1) {
    PrepareInteger(job, work, place, source);
  } else {
    PrepareHalf(job, work, place, item, source);
  }
}

// The signs of the matrix, which no kernel in front writes.
__device__ inline void PrefetchSigns(const DeviceMatrix& matrix) {
  for (int k = static_cast<int>(threadIdx.x) * 64; k < matrix.k; k += kPrepareThreads * 64) {
    Prefetch(matrix.suh + k);
  }
}

}  // namespace tp2::cuda
