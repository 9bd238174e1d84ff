// The exact integer product (exl3/linear.h) on the integer tensor core, for one trellis width K.
//
// A block owns 128 outputs and a range of K; a warp owns two columns of 16 x 16 tiles and every
// second k-tile, so that what it loads of the activations serves two tiles.
// The four bytes of a weight's 32-bit product are four u8 elements of operand A; operand B holds an
// activation's int8 part four times, so the tensor core adds the byte sum for us. The high and the
// low part of a row are neighbouring columns, so one lane ends up with both. Fragment mapping:
// research note exl3, 6.4a.
//
// BITS: all sums are integers; the only rounding is fp32(T), then the transform and two products.
#pragma once

#include <cuda_pipeline_primitives.h>

#include <cstdint>

#include "libcore/math/exl3_codebook.h"
#include "libcore/ops/cuda/device_types.h"
#include "libcore/ops/cuda/trellis.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {

inline constexpr int kGemmThreads = 256;
inline constexpr int kBlockTiles = 8;  // columns of tiles of a block
inline constexpr int kWarpTiles = 2;   // columns of a warp
inline constexpr int kBlockOutputs = 128;

template <int K>
struct GemmShared {
  static constexpr int kTileBytes = 32 * K;
  // k-tiles per pipeline stage and stages: long stages for few barriers, within 40 KB.
  static constexpr int kStageTiles = K <= 6 ? 8 : 4;
  static constexpr int kStages = K == 5 || K == 6 ? 3 : 4;
  static constexpr int kStageBytes = kStageTiles * kBlockTiles * kTileBytes;
  static constexpr int kSumBytes = kRowsPerPass * kBlockOutputs * 8;
  static constexpr int kBytes =
      kStages * kStageBytes > kSumBytes ? kStages* kStageBytes : kSumBytes;
};

__device__ inline void MmaU8S8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Starts copying stage `stage` (of the block's range) into shared memory; past the end, nothing.
template <int K>
__device__ inline void LoadStage(const DeviceMatrix& matrix, int k_tile, int k_tile_end,
                                 char* shared) {
  using Shared = GemmShared<K>;
  constexpr int kRowChunks = kBlockTiles * Shared::kTileBytes / 16;
  const int64_t pitch_bytes = matrix.tile_row_pitch * 2;
  const char* corner = reinterpret_cast<const char*>(matrix.trellis) + k_tile * pitch_bytes +
                       static_cast<int64_t>(blockIdx.x) * kBlockTiles * Shared::kTileBytes;
  for (int i = threadIdx.x; i < Shared::kStageTiles * kRowChunks; i += kGemmThreads) {
    const int row = i / kRowChunks;
    if (k_tile + row >= k_tile_end) break;
    __pipeline_memcpy_async(shared + i * 16, corner + row * pitch_bytes + i % kRowChunks * 16, 16);
  }
}

// y of one item and the block's 128 outputs from the exact sums, by one warp.
__device__ inline void StoreOutputs(const LinearJob& job, const LinearWorkspace& work, int item,
                                    const long long (&sums)[4]) {
  const int lane = threadIdx.x % 32;
  const int column = blockIdx.x * kBlockOutputs + 4 * lane;
  const long long offset = kExl3Mul1Offset * work.row_sums[job.first_item + item];
  float v[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) v[j] = __ll2float_rn(kExl3Mul1Slope * sums[j] - offset);
  WarpFwht128(v);
  const float scale = work.scales[job.first_item + item];
  const Fp16* svh = job.matrix.svh + column;
  float4 y;
  y.x = (v[0] * scale) * ToFloat(svh[0]);
  y.y = (v[1] * scale) * ToFloat(svh[1]);
  y.z = (v[2] * scale) * ToFloat(svh[2]);
  y.w = (v[3] * scale) * ToFloat(svh[3]);
  *reinterpret_cast<float4*>(job.y + item * job.y_stride + column) = y;
}

// The whole sums of a block are in shared memory: [item][128].
__device__ inline void FinishWhole(const LinearJob& job, const LinearWorkspace& work,
                                   const long long* sums) {
  for (int item = threadIdx.x / 32; item < job.items; item += kGemmThreads / 32) {
    const long long* from = sums + item * kBlockOutputs + threadIdx.x % 32 * 4;
    const long long four[4] = {from[0], from[1], from[2], from[3]};
    StoreOutputs(job, work, item, four);
  }
}

// Adds the block's part to the workspace; the last block of the 128 outputs finishes them and
// leaves the workspace zero for the next launch.
__device__ inline void FinishSplit(const LinearJob& job, const LinearWorkspace& work,
                                   const long long* sums) {
  __shared__ bool is_last;
  const int64_t n = job.matrix.n;
  unsigned long long* totals = work.partial_sums +
                               static_cast<int64_t>(blockIdx.z) * kRowsPerPass * n +
                               static_cast<int64_t>(blockIdx.x) * kBlockOutputs;
  unsigned int* arrivals = work.arrivals + blockIdx.z * gridDim.x + blockIdx.x;
  for (int i = threadIdx.x; i < job.items * kBlockOutputs; i += kGemmThreads) {
    atomicAdd(totals + i / kBlockOutputs * n + i % kBlockOutputs,
              static_cast<unsigned long long>(sums[i]));
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(arrivals, 1u) + 1 == gridDim.y;
    if (is_last) *arrivals = 0;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  for (int item = threadIdx.x / 32; item < job.items; item += kGemmThreads / 32) {
    unsigned long long* from = totals + item * n + threadIdx.x % 32 * 4;
    long long four[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      four[j] = static_cast<long long>(__ldcg(from + j));
      from[j] = 0;
    }
    StoreOutputs(job, work, item, four);
  }
}

// Adds the warp's tiles of one k-tile. tiles: the warp's first tile in shared memory.
template <int K, int kGroups>
__device__ inline void AddKTile(const TileWindow<K>& window, const char* tiles,
                                const uint32_t* quanta, int64_t group_stride,
                                int (&sums)[kWarpTiles][kGroups][4]) {
  uint32_t v[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) v[g] = __ldg(quanta + g * group_stride);
#pragma unroll
  for (int t = 0; t < kWarpTiles; ++t) {
    uint32_t p[8];
    window.States(reinterpret_cast<const uint32_t*>(tiles + t * GemmShared<K>::kTileBytes), p);
#pragma unroll
    for (int j = 0; j < 8; ++j) p[j] = p[j] * kExl3Mul1Multiplier;
    const uint32_t first[4] = {p[0], p[4], p[1], p[5]};
    const uint32_t second[4] = {p[2], p[6], p[3], p[7]};
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      MmaU8S8(sums[t][g], first, __byte_perm(v[g], 0, 0x0000), __byte_perm(v[g], 0, 0x1111));
      MmaU8S8(sums[t][g], second, __byte_perm(v[g], 0, 0x2222), __byte_perm(v[g], 0, 0x3333));
    }
  }
}

// Both warps of a pair of columns put their sums together in shared memory: [item][128].
template <int kGroups>
__device__ inline void GatherSums(const LinearJob& job, int first_column, int k_half,
                                  const int (&sums)[kWarpTiles][kGroups][4], long long* totals) {
  const int lane = threadIdx.x % 32;
  for (int turn = 0; turn < 2; ++turn) {
    if (turn == k_half) {
#pragma unroll
      for (int t = 0; t < kWarpTiles; ++t) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const int item = kRowsPerGroup * g + lane % 4;
          if (item >= job.items) continue;
          long long* to = totals + item * kBlockOutputs + first_column + t * 16 + lane / 4;
          const long long low = 254LL * sums[t][g][0] + sums[t][g][1];
          const long long high = 254LL * sums[t][g][2] + sums[t][g][3];
          to[0] = turn == 0 ? low : to[0] + low;
          to[8] = turn == 0 ? high : to[8] + high;
        }
      }
    }
    __syncthreads();
  }
}

template <int K, int kGroups>
__device__ inline void GemmBody(const LinearJob& job, const LinearWorkspace& work, char* shared) {
  using Shared = GemmShared<K>;
  constexpr int kStages = Shared::kStages, kStageTiles = Shared::kStageTiles;
  const int lane = threadIdx.x % 32;
  const int pair = threadIdx.x / 32 % 4;
  const int k_half = threadIdx.x / 128;
  const int k_tiles = job.matrix.k / 16;
  const int steps = job.matrix.k / 128;  // ranges are whole 128-blocks
  const int begin = steps * static_cast<int>(blockIdx.y) / static_cast<int>(gridDim.y) * 8;
  const int end = steps * static_cast<int>(blockIdx.y + 1) / static_cast<int>(gridDim.y) * 8;
  const TileWindow<K> window(lane);
  const int64_t group_stride = static_cast<int64_t>(k_tiles) * 32;
  const uint32_t* quanta = work.quanta + job.first_group * group_stride + lane;
  int sums[kWarpTiles][kGroups][4] = {};
  for (int s = 0; s < kStages - 1; ++s) {
    LoadStage<K>(job.matrix, begin + s * kStageTiles, end, shared + s * Shared::kStageBytes);
    __pipeline_commit();
  }
  int stage = 0;
  for (int k_tile = begin; k_tile < end; k_tile += kStageTiles) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();
    const int next = (stage + kStages - 1) % kStages;
    LoadStage<K>(job.matrix, k_tile + (kStages - 1) * kStageTiles, end,
                 shared + next * Shared::kStageBytes);
    __pipeline_commit();
    const char* tiles =
        shared + stage * Shared::kStageBytes + pair * kWarpTiles * Shared::kTileBytes;
#pragma unroll
    for (int i = 0; i < kStageTiles; i += 2) {
      AddKTile<K, kGroups>(window, tiles + (i + k_half) * kBlockTiles * Shared::kTileBytes,
                           quanta + static_cast<int64_t>(k_tile + i + k_half) * 32, group_stride,
                           sums);
    }
    stage = (stage + 1) % kStages;
  }
  __pipeline_wait_prior(0);
  __syncthreads();
  long long* totals = reinterpret_cast<long long*>(shared);
  GatherSums<kGroups>(job, pair * kWarpTiles * 16, k_half, sums, totals);
  if (gridDim.y == 1) {
    FinishWhole(job, work, totals);
  } else {
    FinishSplit(job, work, totals);
  }
}

// Most groups of the two variants: few rows leave registers for more resident blocks.
inline constexpr int kFewGroups = 2;
inline constexpr int kManyGroups = GroupsOf(kRowsPerPass);

// Grid: x = blocks of 128 outputs, y = parts of K, z = jobs. Jobs of another width are skipped.
template <int K, int kMaxGroups>
__global__ void __launch_bounds__(kGemmThreads, kMaxGroups == kFewGroups ? 4 : 2)
    IntegerGemmKernel(const __grid_constant__ LinearJobs jobs, const LinearWorkspace work) {
  __shared__ __align__(16) char shared[GemmShared<K>::kBytes];
  const LinearJob& job = jobs.list != nullptr ? jobs.list[blockIdx.z] : jobs.single;
  if (job.items == 0 || job.matrix.bits != K || job.matrix.codebook != kCodebookMul1) return;
  if (static_cast<int>(blockIdx.x) * kBlockOutputs >= job.matrix.n) return;
  const int groups = GroupsOf(job.items);
  if constexpr (kMaxGroups == kFewGroups) {
    if (groups == 1) return GemmBody<K, 1>(job, work, shared);
    return GemmBody<K, 2>(job, work, shared);
  } else {
    switch (groups) {
      case 1:
        return GemmBody<K, 1>(job, work, shared);
      case 2:
        return GemmBody<K, 2>(job, work, shared);
      case 3:
        return GemmBody<K, 3>(job, work, shared);
      case 4:
      case 5:
        return GemmBody<K, 5>(job, work, shared);
      default:
        return GemmBody<K, 6>(job, work, shared);
    }
  }
}

template <int K>
void LaunchIntegerGemmOf(const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                         cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(jobs.max_outputs / kBlockOutputs),
                  static_cast<unsigned>(splits), static_cast<unsigned>(jobs.job_count));
  if (GroupsOf(jobs.max_items) <= kFewGroups) {
    IntegerGemmKernel<K, kFewGroups><<<grid, kGemmThreads, 0, stream>>>(jobs, work);
  } else {
    IntegerGemmKernel<K, kManyGroups><<<grid, kGemmThreads, 0, stream>>>(jobs, work);
  }
}

}  // namespace tp2::cuda
