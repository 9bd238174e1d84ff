// The exact integer product (exl3/linear.h) on the integer tensor core, for one trellis width K.
//
// A block owns 128 outputs and a range of K. A warp owns 64 of the outputs and every n-th unit of
// 64 inputs (trellis.cuh), n the warps that share a column. It copies its weights ahead of the
// arithmetic into slots of shared memory of its own, so that no warp waits for another before the
// sums meet.
// What a warp does with a unit: unit_sums.cuh.
//
// BITS: all sums are integers; the only rounding is fp32(T), then the transform and two products.
#pragma once

#include <cstdint>

#include "libcore/math/exl3_codebook.h"
#include "libcore/ops/cuda/device_types.h"
#include "libcore/ops/cuda/job.cuh"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/unit_sums.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {

inline constexpr int kBlockOutputs = 128;
inline constexpr int kBlockColumns = kBlockOutputs / kUnitOutputs;  // units side by side
// Items of the block's sums start on different banks.
inline constexpr int kSumPitch = kBlockOutputs + 8;

// What a kernel variant is made of: how many groups of rows it can hold, and the threads and blocks
// of a multiprocessor that its registers leave room for.
template <int K, int kMaxGroupsOfVariant>
struct GemmShape {
  static constexpr int kMaxGroups = kMaxGroupsOfVariant;
  // One group is mostly experts: many short jobs, for which small blocks balance better.
  static constexpr int kWarps = kMaxGroups == 1 ? 4 : kMaxGroups == 4 || kMaxGroups == 5 ? 6 : 8;
  static constexpr int kThreads = 32 * kWarps;
  // As many blocks as registers allow without spills (nvcc 13.0).
  static constexpr bool kIsWide =
      kMaxGroups == 6 || (kMaxGroups >= 4 && (K == 1 || K == 7 || K == 8));
  static constexpr int kBlocks = kMaxGroups == 1 ? 6 : kIsWide ? 1 : 2;
  static constexpr int kParts = kWarps / kBlockColumns;  // of a column's units
  // Slots of a warp: 2 KB (K = 1) to 8 KB (K = 8) under way, times the warps of a multiprocessor,
  // cover the latency of device memory.
  static constexpr int kSlots = K <= 2 ? 4 : K <= 4 ? 3 : 2;
  static constexpr int kUnitVectors = 32 * K;  // 16 bytes each
  static constexpr int kSlotBytes = kWarps * kSlots * kUnitVectors * 16;
  static constexpr int kSumBytes = 2 * kMaxGroups * kRowsPerGroup * kSumPitch * 4;
  static constexpr int kSharedBytes = kSlotBytes > kSumBytes ? kSlotBytes : kSumBytes;
};

// Where the int32 sums of a block's warps meet: shared memory, [item][kSumPitch] of each part.
struct BlockSums {
  int* high;
  int* low;

  __device__ long long At(int item, int output) const {
    const int i = item * kSumPitch + output;
    return 254LL * high[i] + low[i];
  }
};

// Items of a block that has `warps` warps and jobs of at most `groups` groups, per warp.
constexpr int ItemsPerWarp(int groups, int warps) {
  return (groups * kRowsPerGroup + warps - 1) / warps;
}

// y of the 128 outputs of number `block` from their exact sums. load(item, sums): the lane's four.
// A warp has up to kItems items and does them together, so that it waits once.
template <int kItems, class Load>
__device__ inline void StoreOutputs(const LinearJob& job, const LinearWorkspace& work, int block,
                                    Load load) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  if (warp >= job.items) return;
  const int column = block * kBlockOutputs + 4 * lane;
  long long sums[kItems][4] = {};
  long long row_sums[kItems] = {};
  float scales[kItems] = {};
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int item = warp + i * warps;
    if (item >= job.items) break;
    load(item, sums[i]);
    row_sums[i] = work.row_sums[job.first_item + item];
    scales[i] = work.scales[job.first_item + item];
  }
  float out_scale[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) out_scale[j] = ToFloat(job.matrix.svh[column + j]);
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const long long offset = kExl3Mul1Offset * row_sums[i];
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = __ll2float_rn(kExl3Mul1Slope * sums[i][j] - offset);
    WarpFwht128(v);
    float4 y;
    y.x = (v[0] * scales[i]) * out_scale[0];
    y.y = (v[1] * scales[i]) * out_scale[1];
    y.z = (v[2] * scales[i]) * out_scale[2];
    y.w = (v[3] * scales[i]) * out_scale[3];
    const int item = warp + i * warps;
    if (item < job.items) *reinterpret_cast<float4*>(job.y + item * job.y_stride + column) = y;
  }
}

// Outputs whose sums hold all of K.
template <int kItems>
__device__ inline void FinishWhole(const LinearJob& job, const LinearWorkspace& work, int block,
                                   const BlockSums& sums) {
  StoreOutputs<kItems>(job, work, block, [&sums](int item, long long(&four)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) four[j] = sums.At(item, threadIdx.x % 32 * 4 + j);
  });
}

// Where the parts of K of 128 outputs meet in the workspace.
struct SplitSums {
  unsigned long long* totals;  // [item][pitch]
  int64_t pitch;
  unsigned int* arrivals;
  unsigned int parts;
};

// Adds a part to the workspace; the last one finishes the outputs and leaves the workspace zero for
// the next launch.
template <int kItems>
__device__ inline void FinishSplit(const LinearJob& job, const LinearWorkspace& work, int block,
                                   const BlockSums& sums, const SplitSums& split) {
  __shared__ bool is_last;
  for (int i = threadIdx.x; i < job.items * kBlockOutputs; i += blockDim.x) {
    const int item = i / kBlockOutputs, output = i % kBlockOutputs;
    atomicAdd(split.totals + item * split.pitch + output,
              static_cast<unsigned long long>(sums.At(item, output)));
  }
  __syncthreads();
  if (threadIdx.x == 0) is_last = IsLastArrival(split.arrivals, split.parts);
  __syncthreads();
  if (!is_last) return;
  StoreOutputs<kItems>(job, work, block, [&split](int item, long long(&four)[4]) {
    auto* from = reinterpret_cast<longlong2*>(split.totals + item * split.pitch +
                                              static_cast<int>(threadIdx.x) % 32 * 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const longlong2 two = __ldcg(from + half);
      from[half] = {0, 0};
      four[2 * half] = two.x;
      four[2 * half + 1] = two.y;
    }
  });
}

// The block's first sums. Threads meet before and after.
__device__ inline void ClearSums(const LinearJob& job, const BlockSums& totals) {
  for (int i = threadIdx.x; i < job.items * kSumPitch; i += blockDim.x) {
    totals.high[i] = 0;
    totals.low[i] = 0;
  }
}

// The sums of all warps into shared memory. Integer adds commute, so atomics need no turns.
template <int kGroups>
__device__ inline void GatherSums(const LinearJob& job, int first_column,
                                  const int (&sums)[kUnitSide][kGroups][4],
                                  const BlockSums& totals) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int item = kRowsPerGroup * g + lane % 4;
    if (item >= job.items) continue;
#pragma unroll
    for (int column = 0; column < kUnitSide; ++column) {
      const int at = item * kSumPitch + first_column + column * 16 + lane / 4;
      atomicAdd(totals.high + at, sums[column][g][0]);
      atomicAdd(totals.low + at, sums[column][g][1]);
      atomicAdd(totals.high + at + 8, sums[column][g][2]);
      atomicAdd(totals.low + at + 8, sums[column][g][3]);
    }
  }
  __syncthreads();
}

// The warp's part of steps [first, last) of 128 inputs of a column of units.
__device__ inline WarpUnits UnitsOfWarp(int column, int first, int last) {
  const int part = static_cast<int>(threadIdx.x) / 32 / kBlockColumns;
  return {column, 2 * first + part, 2 * last};
}

// The first weights are on their way before the rows are ready.
template <class Shape, int K, int kGroups>
__device__ inline void GemmBody(const LinearJob& job, const LinearWorkspace& work, uint4* shared) {
  const int warp = threadIdx.x / 32;
  const int column = warp % kBlockColumns;
  const int block = static_cast<int>(blockIdx.x);
  const int steps = job.matrix.k / 128;  // ranges are whole 128-blocks
  const WarpUnits range =
      UnitsOfWarp(block * kBlockColumns + column,
                  steps * static_cast<int>(blockIdx.y) / static_cast<int>(gridDim.y),
                  steps * static_cast<int>(blockIdx.y + 1) / static_cast<int>(gridDim.y));
  uint4* const slots = shared + warp * Shape::kSlots * Shape::kUnitVectors;
  StartUnits<Shape, K>(job, range, slots);
  AwaitPredecessor();
  int sums[kUnitSide][kGroups][4] = {};
  SumUnits<Shape, K, kGroups>(job, work, range, slots, sums);
  int* const high = reinterpret_cast<int*>(shared);
  const BlockSums totals = {high, high + Shape::kMaxGroups * kRowsPerGroup * kSumPitch};
  __syncthreads();  // the sums lie where other warps' slots were
  ClearSums(job, totals);
  __syncthreads();
  GatherSums<kGroups>(job, column * kUnitOutputs, sums, totals);
  constexpr int kItems = ItemsPerWarp(kGroups, Shape::kWarps);
  if (gridDim.y == 1) {
    FinishWhole<kItems>(job, work, block, totals);
  } else {
    const int64_t n = static_cast<int64_t>(gridDim.x) * kBlockOutputs;
    FinishSplit<kItems>(job, work, block, totals,
                        {work.partial_sums + static_cast<int64_t>(blockIdx.z) * kRowsPerPass * n +
                             static_cast<int64_t>(blockIdx.x) * kBlockOutputs,
                         n, work.arrivals + blockIdx.z * gridDim.x + blockIdx.x, gridDim.y});
  }
}

// Most groups of the variants: few rows leave registers for more resident warps.
inline constexpr int kOneGroup = 1;
inline constexpr int kTwoGroups = 2;
inline constexpr int kFourGroups = 4;
inline constexpr int kFiveGroups = 5;
inline constexpr int kAllGroups = GroupsOf(kRowsPerPass);

// Grid: x = blocks of 128 outputs, y = parts of K, z = jobs. Jobs of another width are skipped.
template <int K, int kMaxGroups>
__global__ void __launch_bounds__(GemmShape<K, kMaxGroups>::kThreads,
                                  GemmShape<K, kMaxGroups>::kBlocks)
    IntegerGemmKernel(const __grid_constant__ LinearJobs jobs, const LinearWorkspace work) {
  using Shape = GemmShape<K, kMaxGroups>;
  TP2_DYNAMIC_SHARED(uint4, shared);
  const LinearJob& job =
      FetchJob(jobs.few + blockIdx.z, [](const uint32_t* word) { return *word; });
  const int first_output = static_cast<int>(blockIdx.x) * kBlockOutputs;
  if (job.items == 0 || job.matrix.bits != K || job.matrix.codebook != kCodebookMul1 ||
      first_output >= job.matrix.n) {
    return AwaitPredecessor();
  }
  if (threadIdx.x < 2) Prefetch(job.matrix.svh + first_output + 64 * threadIdx.x);
  const int groups = GroupsOf(job.items);
  if constexpr (kMaxGroups == kTwoGroups) {
    if (groups == 1) return GemmBody<Shape, K, 1>(job, work, shared);
  } else if constexpr (kMaxGroups == kFourGroups) {
    if (groups <= 3) return GemmBody<Shape, K, 3>(job, work, shared);
  }
  GemmBody<Shape, K, kMaxGroups>(job, work, shared);
}

template <int K, int kMaxGroups>
void LaunchVariant(const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                   const Queue& queue) {
  using Shape = GemmShape<K, kMaxGroups>;
  const dim3 grid(static_cast<unsigned>(jobs.max_outputs / kBlockOutputs),
                  static_cast<unsigned>(splits), static_cast<unsigned>(jobs.job_count));
  Launch(queue, IntegerGemmKernel<K, kMaxGroups>, grid, Shape::kThreads, Shape::kSharedBytes, jobs,
         work);
}

template <int K>
void LaunchIntegerGemmOf(const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                         const Queue& queue) {
  const int groups = GroupsOf(jobs.max_items);
  if (groups <= kOneGroup) return LaunchVariant<K, kOneGroup>(jobs, work, splits, queue);
  if (groups <= kTwoGroups) return LaunchVariant<K, kTwoGroups>(jobs, work, splits, queue);
  if (groups <= kFourGroups) return LaunchVariant<K, kFourGroups>(jobs, work, splits, queue);
  if (groups <= kFiveGroups) return LaunchVariant<K, kFiveGroups>(jobs, work, splits, queue);
  LaunchVariant<K, kAllGroups>(jobs, work, splits, queue);
}

// Loads the variants of one width now and allows them their shared memory.
template <int K, int kMaxGroups>
cudaError_t PreloadVariant() {
  return cudaFuncSetAttribute(IntegerGemmKernel<K, kMaxGroups>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              GemmShape<K, kMaxGroups>::kSharedBytes);
}

template <int K>
cudaError_t PreloadIntegerGemmOf() {
  for (const auto preload :
       {PreloadVariant<K, kOneGroup>, PreloadVariant<K, kTwoGroups>, PreloadVariant<K, kFourGroups>,
        PreloadVariant<K, kFiveGroups>, PreloadVariant<K, kAllGroups>}) {
    if (const cudaError_t error = preload(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace tp2::cuda
