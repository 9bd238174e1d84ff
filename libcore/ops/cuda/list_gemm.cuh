// The integer product of a list of jobs, the routed experts', whose length only the device knows.
//
// The work of all jobs is one row of steps: 128 inputs by 128 outputs, in the order of the job, its
// outputs, K. Each block takes an equal range of them, whatever it crosses. A piece, the part of a
// range inside of the same 128 outputs, meets the others that its outputs need in the workspace.
//
// BITS: integer sums have one value however they are cut.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libcore/ops/cuda/integer_gemm.cuh"

namespace tp2::cuda {

constexpr int CeilDivided(int a, int b) { return (a + b - 1) / b; }

// A piece of fewer costs more than its arithmetic: reading the job, the first weights' latency, the
// meeting with the others.
inline constexpr int kLeastSteps = 4;
// A range that is as long gains from being two, because not all places may be free at once: the
// shared expert's products run beside this one.
inline constexpr int kLongSteps = 24;
inline constexpr int kMostWaves = 2;

// Steps per block, of `steps` in all, on a card that holds `places` blocks at once. Whole waves:
// one block alone at the end takes as long as a wave.
constexpr int ListRange(int steps, int places) {
  const int range = CeilDivided(steps, places);
  if (range >= kLongSteps) return CeilDivided(steps, kMostWaves * places);
  return range < kLeastSteps ? kLeastSteps : range;
}

// How the steps lie, and the block's walk over its range. In shared memory: the sums need the
// registers.
struct ListCut {
  int blocks_per_job;
  int steps_per_output;  // of 128 outputs
  int range;             // of a block
  int begin, end;        // what is left of this block's
  int job_end;           // of the current job's part of it

  __device__ static ListCut Of(const JobList& list, int places) {
    ListCut cut;
    cut.blocks_per_job = list.n / kBlockOutputs;
    cut.steps_per_output = list.k / 128;
    const int steps = CountOf(list) * cut.blocks_per_job * cut.steps_per_output;
    cut.range = ListRange(steps, places);
    cut.begin = static_cast<int>(blockIdx.x) * cut.range;
    cut.end = min(steps, cut.begin + cut.range);
    return cut;
  }
  // Blocks that have steps of the outputs with this number.
  __device__ unsigned int PartsOf(int number) const {
    const int first = number * steps_per_output;
    return (first + steps_per_output - 1) / range - first / range + 1;
  }
};

template <int K>
struct ListShape : GemmShape<K, kOneGroup> {
  // As many as the body of two groups allows without spills (nvcc 13.0).
  static constexpr int kBlocks = K <= 2 ? 5 : 4;
  static constexpr int kSumBytes = 2 * kRowsPerJob * kSumPitch * 4;
  // Not where the slots are: while sums meet, the next piece's weights are on their way.
  static constexpr int kSharedBytes = ListShape::kSlotBytes + kSumBytes;
};

// The 128 outputs with this number in the list, from the sums of a piece.
template <int kItems>
__device__ inline void FinishPiece(const LinearJob& job, const LinearWorkspace& work,
                                   const ListCut& cut, int number, const BlockSums& totals) {
  const int block = number % cut.blocks_per_job;
  const unsigned int parts = cut.PartsOf(number);
  if (parts == 1) {
    FinishWhole<kItems>(job, work, block, totals);
  } else {
    const int n = job.matrix.n;
    FinishSplit<kItems>(job, work, block, totals,
                        {work.partial_sums + static_cast<int64_t>(job.first_item) * n +
                             static_cast<int64_t>(block) * kBlockOutputs,
                         n, work.arrivals + number, parts});
  }
}

// Puts the first weights of the piece that begins at this step on their way.
template <int K>
__device__ inline WarpUnits StartPiece(const LinearJob& job, const ListCut& cut, int begin,
                                       int column, uint4* slots) {
  using Shape = ListShape<K>;
  const int number = begin / cut.steps_per_output;
  const int block = number % cut.blocks_per_job;
  const int first = begin - number * cut.steps_per_output;
  if (threadIdx.x < 2) {
    Prefetch(job.matrix.svh + block * kBlockOutputs + 64 * static_cast<int>(threadIdx.x));
  }
  const WarpUnits units = UnitsOfWarp(block * kBlockColumns + column, first,
                                      min(cut.steps_per_output, first + cut.job_end - begin));
  StartUnits<Shape, K>(job, units, slots);
  return units;
}

// The steps [cut.begin, cut.job_end), which are walked.
template <int K, int kGroups>
__device__ inline void ListGemmBody(const LinearJob& job, const LinearWorkspace& work, ListCut& cut,
                                    uint4* shared) {
  using Shape = ListShape<K>;
  const int warp = threadIdx.x / 32;
  const int column = warp % kBlockColumns;
  uint4* const slots = shared + warp * Shape::kSlots * Shape::kUnitVectors;
  int* const high = reinterpret_cast<int*>(shared) + Shape::kSlotBytes / sizeof(int);
  const BlockSums totals = {high, high + kRowsPerJob * kSumPitch};
  WarpUnits units = StartPiece<K>(job, cut, cut.begin, column, slots);
  AwaitPredecessor();
  while (true) {
    ClearSums(job, totals);
    int sums[kUnitSide][kGroups][4] = {};
    SumUnits<Shape, K, kGroups>(job, work, units, slots, sums);
    const int number = cut.begin / cut.steps_per_output;
    const int begin = min(cut.job_end, (number + 1) * cut.steps_per_output);
    if (begin < cut.job_end) units = StartPiece<K>(job, cut, begin, column, slots);
    __syncthreads();
    if (threadIdx.x == 0) cut.begin = begin;
    GatherSums<kGroups>(job, column * kUnitOutputs, sums, totals);
    FinishPiece<ItemsPerWarp(kGroups, Shape::kWarps)>(job, work, cut, number, totals);
    __syncthreads();
    if (begin == cut.job_end) return;
  }
}

// Jobs of another width are skipped: the launch of theirs does them.
template <int K>
__global__ void __launch_bounds__(ListShape<K>::kThreads, ListShape<K>::kBlocks)
    ListGemmKernel(const JobList list, const LinearWorkspace work, int places) {
  TP2_DYNAMIC_SHARED(uint4, shared);
  __shared__ ListCut cut;
  if (threadIdx.x == 0) cut = ListCut::Of(list, places);
  __syncthreads();
  while (cut.begin < cut.end) {
    const int steps_per_job = cut.blocks_per_job * cut.steps_per_output;
    const int number = cut.begin / steps_per_job;
    if (threadIdx.x == 0) cut.job_end = min(cut.end, (number + 1) * steps_per_job);
    const LinearJob& job = FetchJob(list, number);
    if (job.matrix.bits != K || job.matrix.codebook != kCodebookMul1) {
      if (threadIdx.x == 0) cut.begin = cut.job_end;
    } else if (job.items <= kRowsPerGroup) {
      ListGemmBody<K, 1>(job, work, cut, shared);
    } else {
      ListGemmBody<K, 2>(job, work, cut, shared);
    }
    __syncthreads();
  }
  AwaitPredecessor();
}

// Enough blocks for a full list. Smaller cards than sm_90 hold fewer than Shape::kBlocks.
template <int K>
void LaunchListGemmOf(const LinearJobs& jobs, const LinearWorkspace& work, int multiprocessors,
                      const Queue& queue) {
  using Shape = ListShape<K>;
  int resident = 0;
  (void)cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, ListGemmKernel<K>, Shape::kThreads,
                                                      Shape::kSharedBytes);
  const int places = std::max(1, resident) * multiprocessors;
  const int steps = jobs.job_count * (jobs.list.n / kBlockOutputs) * (jobs.list.k / 128);
  const int blocks = std::min(kMostWaves * places, CeilDivided(steps, kLeastSteps));
  Launch(queue, ListGemmKernel<K>, static_cast<unsigned>(blocks), Shape::kThreads,
         Shape::kSharedBytes, jobs.list, work, places);
}

}  // namespace tp2::cuda
