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

// How the steps lie.
struct ListCut {
  int blocks_per_job;
  int steps_per_output;  // of 128 outputs
  int total;
  int range;  // of a block

  __device__ ListCut(const JobList& list, int places)
      : blocks_per_job(list.n / kBlockOutputs),
        steps_per_output(list.k / 128),
        // Written by a kernel that has ended, but perhaps after this multiprocessor cached it.
        total(__ldcg(list.count) * blocks_per_job * steps_per_output),
        range(ListRange(total, places)) {}
  // Blocks that have steps of the outputs whose first step this is.
  __device__ unsigned int PartsOf(int first) const {
    return (first + steps_per_output - 1) / range - first / range + 1;
  }
};

template <int K>
struct ListShape : GemmShape<K, kOneGroup> {
  // Not where the slots are: while sums meet, the next piece's weights are on their way.
  static constexpr int kSharedBytes = ListShape::kSlotBytes + ListShape::kSumBytes;
};

// The outputs of a piece, from the sums of its part of K. number: of the outputs in the list;
// first: their first step.
__device__ inline void FinishPiece(const LinearJob& job, const LinearWorkspace& work,
                                   const ListCut& cut, int number, const BlockSums& totals) {
  const int block = number % cut.blocks_per_job;
  const unsigned int parts = cut.PartsOf(number * cut.steps_per_output);
  if (parts == 1) {
    FinishWhole(job, work, block, totals);
  } else {
    FinishSplit(job, work, block, totals,
                {work.partial_sums + static_cast<int64_t>(number) * kRowsPerGroup * kBlockOutputs,
                 kBlockOutputs, work.arrivals + number, parts});
  }
}

// The steps [begin, end) of the list, which are one job's.
template <int K>
__device__ inline void ListGemmBody(const LinearJob& job, const LinearWorkspace& work,
                                    const ListCut& cut, int begin, int end, uint4* shared) {
  using Shape = ListShape<K>;
  const int warp = threadIdx.x / 32;
  const int column = warp % kBlockColumns;
  uint4* const slots = shared + warp * Shape::kSlots * Shape::kUnitVectors;
  int* const high = reinterpret_cast<int*>(shared) + Shape::kSlotBytes / sizeof(int);
  const BlockSums totals = {high, high + kRowsPerGroup * kSumPitch};
  int number = begin / cut.steps_per_output;
  int first = begin - number * cut.steps_per_output;
  const auto start = [&](int left) {
    const int block = number % cut.blocks_per_job;
    if (threadIdx.x < 2) {
      Prefetch(job.matrix.svh + block * kBlockOutputs + 64 * static_cast<int>(threadIdx.x));
    }
    const WarpUnits range = WarpUnits::Of<Shape>(job, block * kBlockColumns + column, first,
                                                 min(cut.steps_per_output, first + left));
    StartUnits<Shape, K>(range, slots);
    return range;
  };
  WarpUnits range = start(end - begin);
  AwaitPredecessor();
  while (true) {
    ClearSums(job, totals);
    int sums[kUnitSide][1][4] = {};
    SumUnits<Shape, K, 1>(job, work, range, slots, sums);
    const int finished = number;
    begin += min(cut.steps_per_output - first, end - begin);
    ++number;
    first = 0;
    if (begin < end) range = start(end - begin);
    __syncthreads();
    GatherSums<1>(job, column * kUnitOutputs, sums, totals);
    FinishPiece(job, work, cut, finished, totals);
    __syncthreads();
    if (begin == end) return;
  }
}

// Jobs of another width are skipped; the launch of theirs cuts the list in the same way.
template <int K>
__global__ void __launch_bounds__(ListShape<K>::kThreads, ListShape<K>::kBlocks)
    ListGemmKernel(const JobList list, const LinearWorkspace work, int places) {
  TP2_DYNAMIC_SHARED(uint4, shared);
  const ListCut cut(list, places);
  const int steps_per_job = cut.blocks_per_job * cut.steps_per_output;
  int begin = static_cast<int>(blockIdx.x) * cut.range;
  const int end = min(cut.total, begin + cut.range);
  while (begin < end) {
    const int number = begin / steps_per_job;
    const int job_end = min(end, (number + 1) * steps_per_job);
    const LinearJob& job =
        FetchJob(list.jobs + number, [](const uint32_t* word) { return __ldcg(word); });
    if (job.matrix.bits == K && job.matrix.codebook == kCodebookMul1) {
      ListGemmBody<K>(job, work, cut, begin, job_end, shared);
    }
    __syncthreads();
    begin = job_end;
  }
  AwaitPredecessor();
}

// Enough blocks for a full list.
template <int K>
void LaunchListGemmOf(const LinearJobs& jobs, const LinearWorkspace& work, int multiprocessors,
                      const Queue& queue) {
  using Shape = ListShape<K>;
  const int places = Shape::kBlocks * multiprocessors;
  const int steps = jobs.job_count * (jobs.list.n / kBlockOutputs) * (jobs.list.k / 128);
  const int blocks = std::min(kMostWaves * places, CeilDivided(steps, kLeastSteps));
  Launch(queue, ListGemmKernel<K>, static_cast<unsigned>(blocks), Shape::kThreads,
         Shape::kSharedBytes, jobs.list, work, places);
}

}  // namespace tp2::cuda
