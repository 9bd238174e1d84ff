// The exact integer product (exl3/linear.h) on the integer tensor core, for one trellis width K.
//
// A block owns 128 outputs and a range of K. A warp owns 64 of the outputs and every n-th unit of
// 64 inputs (trellis.cuh), n the warps that share a column. It copies its weights ahead of the
// arithmetic into slots of shared memory of its own, so that no warp waits for another before the
// sums meet.
// The four bytes of a weight's 32-bit product are four u8 elements of operand A; operand B holds an
// activation's int8 part four times, so the tensor core adds the byte sum for us. The high and the
// low part of a row are neighbouring columns, so one lane ends up with both. Fragment mapping:
// research note exl3, 6.4a.
//
// BITS: all sums are integers; the only rounding is fp32(T), then the transform and two products.
#pragma once

#include <cstdint>

#include "libcore/math/exl3_codebook.h"
#include "libcore/ops/cuda/device_types.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/trellis.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {

inline constexpr int kBlockOutputs = 128;
inline constexpr int kBlockColumns = kBlockOutputs / kUnitOutputs;  // units side by side
inline constexpr int kUnitSide = 4;                                 // tiles of a unit each way
// Items of the block's sums start on different banks.
inline constexpr int kSumPitch = kBlockOutputs + 8;

// What a kernel variant is made of: how many groups of rows it can hold, and the threads and blocks
// of a multiprocessor that its registers leave room for.
template <int K, int kMaxGroupsOfVariant>
struct GemmShape {
  static constexpr int kMaxGroups = kMaxGroupsOfVariant;
  // One group is mostly experts: many short jobs, for which small blocks balance better.
  static constexpr int kWarps = kMaxGroups == 1 ? 4 : kMaxGroups == 5 ? 6 : 8;
  static constexpr int kThreads = 32 * kWarps;
  // As many blocks as registers allow without spills (nvcc 13.0).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  static constexpr int kBlocks = kMaxGroups == 1 ? 6 : kMaxGroups == 2 ? 2 : 1;
#else
  static constexpr bool kIsWide =
      kMaxGroups == 6 || (kMaxGroups == 5 && (K == 3 || K == 7 || K == 8));
  static constexpr int kBlocks = kMaxGroups == 1 ? 6 : kIsWide ? 1 : 2;
#endif
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

// y of one item and the 128 outputs of number `block` from the exact sums, by one warp.
__device__ inline void StoreOutputs(const LinearJob& job, const LinearWorkspace& work, int block,
                                    int item, const long long (&sums)[4]) {
  const int lane = threadIdx.x % 32;
  const int column = block * kBlockOutputs + 4 * lane;
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

// Outputs whose sums hold all of K.
__device__ inline void FinishWhole(const LinearJob& job, const LinearWorkspace& work, int block,
                                   const BlockSums& sums) {
  for (int item = threadIdx.x / 32; item < job.items; item += blockDim.x / 32) {
    long long four[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) four[j] = sums.At(item, threadIdx.x % 32 * 4 + j);
    StoreOutputs(job, work, block, item, four);
  }
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
__device__ inline void FinishSplit(const LinearJob& job, const LinearWorkspace& work, int block,
                                   const BlockSums& sums, const SplitSums& split) {
  __shared__ bool is_last;
  for (int i = threadIdx.x; i < job.items * kBlockOutputs; i += blockDim.x) {
    const int item = i / kBlockOutputs, output = i % kBlockOutputs;
    atomicAdd(split.totals + item * split.pitch + output,
              static_cast<unsigned long long>(sums.At(item, output)));
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = CountArrival(split.arrivals) + 1 == split.parts;
    if (is_last) *split.arrivals = 0;
  }
  __syncthreads();
  if (!is_last) return;
  for (int item = threadIdx.x / 32; item < job.items; item += blockDim.x / 32) {
    unsigned long long* from = split.totals + item * split.pitch + threadIdx.x % 32 * 4;
    long long four[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      four[j] = static_cast<long long>(__ldcg(from + j));
      from[j] = 0;
    }
    StoreOutputs(job, work, block, item, four);
  }
}

// Adds one unit. values: the lane's words of the unit's first k-tile, one per group; then of the
// next unit's. They are loaded a k-tile ahead, from the indices `now` and `next` of the quanta; not
// through the read-only path, because they may be written while this kernel is already there.
// Indices of 32 bits leave registers for the sums.
template <int K, int kGroups>
__device__ inline void AddUnit(const LaneUnit<K>& unit, const uint32_t* quanta, int now, int next,
                               int group_stride, uint32_t (&values)[kGroups],
                               int (&sums)[kUnitSide][kGroups][4]) {
#pragma unroll
  for (int k_tile = 0; k_tile < kUnitSide; ++k_tile) {
    uint32_t four[kGroups][4];  // each value's byte four times
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const uint32_t v = values[g];
      values[g] = quanta[(k_tile + 1 < kUnitSide ? now + k_tile + 1 : next) + g * group_stride];
      four[g][0] = __byte_perm(v, 0, 0x0000);
      four[g][1] = __byte_perm(v, 0, 0x1111);
      four[g][2] = __byte_perm(v, 0, 0x2222);
      four[g][3] = __byte_perm(v, 0, 0x3333);
    }
    uint32_t in_front = 0;
#pragma unroll
    for (int column = 0; column < kUnitSide; ++column) {
      const int tile = kUnitSide * k_tile + column;
      if (column % 2 == 0) in_front = BitsInFront(unit, tile);
      uint32_t p[8];
      TileStates(unit, tile, in_front, p);
#pragma unroll
      for (int j = 0; j < 8; ++j) p[j] = p[j] * kExl3Mul1Multiplier;
      const uint32_t first[4] = {p[0], p[4], p[1], p[5]};
      const uint32_t second[4] = {p[2], p[6], p[3], p[7]};
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        MmaU8S8(sums[column][g], first, four[g][0], four[g][1]);
        MmaU8S8(sums[column][g], second, four[g][2], four[g][3]);
      }
    }
  }
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

// What one warp sums: units begin, begin + kParts, ... below end of a column of units.
struct WarpUnits {
  const uint4* units;  // of the column
  int begin, end;

  // column: of units side by side; steps [first, last) of 128 inputs.
  template <class Shape>
  __device__ static WarpUnits Of(const LinearJob& job, int column, int first, int last) {
    const int unit_count = job.matrix.k / kUnitInputs;
    const int part = static_cast<int>(threadIdx.x) / 32 / kBlockColumns;
    return {reinterpret_cast<const uint4*>(job.matrix.trellis) +
                static_cast<int64_t>(column) * unit_count * Shape::kUnitVectors,
            2 * first + part, 2 * last};
  }
};

// Puts the first weights on their way. slots: the warp's own.
template <class Shape, int K>
__device__ inline void StartUnits(const WarpUnits& range, uint4* slots) {
#pragma unroll
  for (int i = 0; i < Shape::kSlots; ++i) {
    const int u = range.begin + i * Shape::kParts;
    if (u < range.end) {
      CopyUnit<K>(range.units + static_cast<int64_t>(u) * Shape::kUnitVectors,
                  slots + i * Shape::kUnitVectors);
    }
    __pipeline_commit();
  }
}

// The warp's units, started before, summed.
template <class Shape, int K, int kGroups>
__device__ inline void SumUnits(const LinearJob& job, const LinearWorkspace& work,
                                const WarpUnits& range, uint4* slots,
                                int (&sums)[kUnitSide][kGroups][4]) {
  constexpr int kParts = Shape::kParts, kSlots = Shape::kSlots;
  constexpr int kUnitVectors = Shape::kUnitVectors;
  const int group_stride = job.matrix.k / kUnitInputs * 128;
  const int first = job.first_group * group_stride + 4 * (static_cast<int>(threadIdx.x) % 32);
  int now = first + range.begin * 128;
  const int end = first + range.end * 128;
  uint32_t values[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) values[g] = work.quanta[now + g * group_stride];
  const uint4* next =
      range.units + static_cast<int64_t>(range.begin + kSlots * kParts) * kUnitVectors;
  int i = 0;
  for (; now < end; now += kParts * 128) {
    uint4* slot = slots + i * kUnitVectors;
    LaneUnit<K> unit;
    __pipeline_wait_prior(kSlots - 1);
    unit.Load(slot);
    if (now + kSlots * kParts * 128 < end) CopyUnit<K>(next, slot);
    next += kParts * kUnitVectors;
    __pipeline_commit();
    AddUnit<K, kGroups>(unit, work.quanta, now, now + kParts * 128 < end ? now + kParts * 128 : now,
                        group_stride, values, sums);
    i = i + 1 == kSlots ? 0 : i + 1;
  }
}

// The first weights are on their way before the rows are ready.
template <class Shape, int K, int kGroups>
__device__ inline void GemmBody(const LinearJob& job, const LinearWorkspace& work, uint4* shared) {
  const int warp = threadIdx.x / 32;
  const int column = warp % kBlockColumns;
  const int block = static_cast<int>(blockIdx.x);
  const int steps = job.matrix.k / 128;  // ranges are whole 128-blocks
  const WarpUnits range =
      WarpUnits::Of<Shape>(job, block * kBlockColumns + column,
                           steps * static_cast<int>(blockIdx.y) / static_cast<int>(gridDim.y),
                           steps * static_cast<int>(blockIdx.y + 1) / static_cast<int>(gridDim.y));
  uint4* const slots = shared + warp * Shape::kSlots * Shape::kUnitVectors;
  StartUnits<Shape, K>(range, slots);
  AwaitPredecessor();
  int sums[kUnitSide][kGroups][4] = {};
  SumUnits<Shape, K, kGroups>(job, work, range, slots, sums);
  int* const high = reinterpret_cast<int*>(shared);
  const BlockSums totals = {high, high + Shape::kMaxGroups * kRowsPerGroup * kSumPitch};
  __syncthreads();  // the sums lie where other warps' slots were
  ClearSums(job, totals);
  __syncthreads();
  GatherSums<kGroups>(job, column * kUnitOutputs, sums, totals);
  if (gridDim.y == 1) {
    FinishWhole(job, work, block, totals);
  } else {
    const int64_t n = static_cast<int64_t>(gridDim.x) * kBlockOutputs;
    FinishSplit(job, work, block, totals,
                {work.partial_sums + static_cast<int64_t>(blockIdx.z) * kRowsPerPass * n +
                     static_cast<int64_t>(blockIdx.x) * kBlockOutputs,
                 n, work.arrivals + blockIdx.z * gridDim.x + blockIdx.x, gridDim.y});
  }
}

// Most groups of the variants: few rows leave registers for more resident warps.
inline constexpr int kOneGroup = 1;
inline constexpr int kFewGroups = 2;
inline constexpr int kManyGroups = 5;
inline constexpr int kAllGroups = GroupsOf(kRowsPerPass);

// Copies a job into shared memory. Threads meet before another one is fetched.
template <class LoadWord>
__device__ inline const LinearJob& FetchJob(const LinearJob* job, LoadWord load) {
  constexpr int kWords = sizeof(LinearJob) / sizeof(uint32_t);
  __shared__ __align__(16) uint32_t words[kWords];
  const int i = static_cast<int>(threadIdx.x);
  if (i < kWords) words[i] = load(reinterpret_cast<const uint32_t*>(job) + i);
  __syncthreads();
  return *reinterpret_cast<const LinearJob*>(words);
}

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
  if constexpr (kMaxGroups <= kFewGroups) {
    if constexpr (kMaxGroups == kFewGroups) {
      if (groups == 2) return GemmBody<Shape, K, 2>(job, work, shared);
    }
    return GemmBody<Shape, K, 1>(job, work, shared);
  } else if constexpr (kMaxGroups == kManyGroups) {
    if (groups <= 3) return GemmBody<Shape, K, 3>(job, work, shared);
    if (groups == 4) return GemmBody<Shape, K, 4>(job, work, shared);
    return GemmBody<Shape, K, 5>(job, work, shared);
  } else {
    return GemmBody<Shape, K, kAllGroups>(job, work, shared);
  }
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
  if (groups <= kFewGroups) return LaunchVariant<K, kFewGroups>(jobs, work, splits, queue);
  if (groups <= kManyGroups) return LaunchVariant<K, kManyGroups>(jobs, work, splits, queue);
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
  for (const auto preload : {PreloadVariant<K, kOneGroup>, PreloadVariant<K, kFewGroups>,
                             PreloadVariant<K, kManyGroups>, PreloadVariant<K, kAllGroups>}) {
    if (const cudaError_t error = preload(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace tp2::cuda
