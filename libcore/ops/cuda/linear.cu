// The input transforms in front of products, and the fp16 path of the 3INST and mcg codebooks.
#include "libcore/ops/cuda/job.cuh"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/preload.cuh"
#include "libcore/ops/cuda/prepare.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// The job of a block of a grid whose y are jobs, if there is one.
__device__ bool IsBehindList(const LinearJobs& jobs) {
  return jobs.list.jobs != nullptr && static_cast<int>(blockIdx.y) >= CountOf(jobs.list);
}
__device__ const LinearJob& JobOf(const LinearJobs& jobs) {
  return jobs.list.jobs != nullptr ? jobs.list.jobs[blockIdx.y] : jobs.few[blockIdx.y];
}

__device__ int64_t RowOffset(const LinearJob& job, int item) {
  return (job.gather != nullptr ? job.gather[item] : item) * job.x_stride;
}

__device__ GatedRow GatedRowOf(const LinearJob& job, int item, float limit) {
  const int64_t at = RowOffset(job, item);
  return {job.x + at, job.up + at, job.weights[item], limit};
}

// Grid: x = items, y = jobs; threads and dynamic shared memory as PrepareInteger wants them.
template <bool kIsGated>
__global__ void __launch_bounds__(32 * kMaxPrepareWarps)
    PrepareRowsKernel(const __grid_constant__ LinearJobs jobs, const LinearWorkspace work) {
  TP2_DYNAMIC_SHARED(float4, held);
  const bool is_listed = jobs.list.jobs != nullptr;
  // The kernel in front writes the list of the first product, but not that of the gated one.
  if (is_listed && !kIsGated) AwaitPredecessor();
  if (IsBehindList(jobs)) return AwaitPredecessor();
  const int item = static_cast<int>(blockIdx.x);
  const LinearJob& job =
      is_listed ? FetchJob(jobs.list, static_cast<int>(blockIdx.y)) : jobs.few[blockIdx.y];
  if (item >= job.items || job.matrix.codebook != kCodebookMul1) return AwaitPredecessor();
  PrefetchSigns(job.matrix);
  AwaitPredecessor();
  const RowPlace place = PlaceOf(job, item);
  if constexpr (kIsGated) {
    PrepareInteger(job, work, place, GatedRowOf(job, item, jobs.swiglu_limit), held);
  } else {
    PrepareInteger(job, work, place, PlainRow{job.x + RowOffset(job, item)}, held);
  }
}

// [k] of one item of the fp16 path.
__device__ float* HalvesOf(const LinearJob& job, const LinearWorkspace& work, int item) {
  return work.halves +
         (static_cast<int64_t>(job.first_group) * kRowsPerGroup + item) * job.matrix.k;
}

template <class Row>
__device__ void PrepareHalf(const LinearJob& job, const LinearWorkspace& work, int item,
                            const Row& row) {
  __shared__ bool is_bad;
  if (threadIdx.x == 0) is_bad = false;
  __syncthreads();
  float* to = HalvesOf(job, work, item);
  for (int block = static_cast<int>(threadIdx.x) / 32; block < job.matrix.k / 128;
       block += kWarps) {
    const float4 r = TransformBlock(row, job.matrix.suh, block);
    const float a[4] = {r.x, r.y, r.z, r.w};
    for (int j = 0; j < 4; ++j) {
      const float half = ToFloat(ToFp16(a[j] * kHadamardNorm));
      to[block * 128 + static_cast<int>(threadIdx.x) % 32 * 4 + j] = half;
      if (!IsFinite(half)) is_bad = true;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    work.scales[job.first_item + item] = is_bad ? __uint_as_float(0x7FC00000u) : kHadamardNorm;
  }
}

// Grid: x = items, y = jobs.
__global__ void __launch_bounds__(kThreads)
    PrepareHalvesKernel(const __grid_constant__ LinearJobs jobs, const LinearWorkspace work) {
  AwaitPredecessor();
  if (IsBehindList(jobs)) return;
  const LinearJob& job = JobOf(jobs);
  const int item = static_cast<int>(blockIdx.x);
  if (item >= job.items || job.matrix.codebook == kCodebookMul1) return;
  if (jobs.is_gated) {
    PrepareHalf(job, work, item, GatedRowOf(job, item, jobs.swiglu_limit));
  } else {
    PrepareHalf(job, work, item, PlainRow{job.x + RowOffset(job, item)});
  }
}

// State of position p of a tile of any width (exl3/decode.h).
__device__ uint32_t StateAt(const uint16_t* units, int bits, int p) {
  const int words = 8 * bits;
  const uint32_t* word = reinterpret_cast<const uint32_t*>(units);
  const int end = (p + 1) * bits;
  const int last = (end - 1) / 32;
  const uint32_t high = word[(last + words - 1) % words];
  return __funnelshift_rc(word[last], high, 32 * (last + 1) - end) & 0xFFFFu;
}

constexpr int kItemsPerThread = kRowsPerPass / 2;

// Adds the 16 inputs of a decoded k-tile to this thread's sums, ascending. Products of two halves
// are exact in fp32, so fusing cannot matter.
__device__ void AddKTile(const LinearJob& job, const LinearWorkspace& work, int k_tile, int column,
                         const float (&weights)[16][128], float (&sums)[kItemsPerThread]) {
#pragma unroll
  for (int i = 0; i < kItemsPerThread; ++i) {
    const int item = 2 * i + threadIdx.x / 128;
    if (item >= job.items) break;
    const float* a = HalvesOf(job, work, item) + k_tile * 16;
    for (int k = 0; k < 16; ++k) sums[i] = fmaf(a[k], weights[k][column], sums[i]);
  }
}

// Grid: x = blocks of 128 outputs, y = jobs. Written for clarity: these codebooks are not the
// mission's.
__global__ void __launch_bounds__(kThreads)
    HalfGemmKernel(const __grid_constant__ LinearJobs jobs, const LinearWorkspace work) {
  AwaitPredecessor();
  __shared__ float weights[16][128];
  __shared__ __align__(16) float totals[kRowsPerPass][128];
  if (IsBehindList(jobs)) return;
  const LinearJob& job = JobOf(jobs);
  const DeviceMatrix& matrix = job.matrix;
  if (job.items == 0 || matrix.codebook == kCodebookMul1) return;
  if (static_cast<int>(blockIdx.x) * 128 >= matrix.n) return;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int column = threadIdx.x % 128;
  float sums[kItemsPerThread] = {};
  for (int k_tile = 0; k_tile < matrix.k / 16; ++k_tile) {
    const uint16_t* tile = matrix.trellis + k_tile * matrix.tile_row_pitch +
                           static_cast<int64_t>(blockIdx.x * 8 + warp) * 16 * matrix.bits;
    __syncthreads();
    for (int j = 0; j < 8; ++j) {
      const uint16_t state = static_cast<uint16_t>(StateAt(tile, matrix.bits, 8 * lane + j));
      const Fp16 value =
          matrix.codebook == kCodebookMcg ? Exl3McgValue(state) : Exl3InstValue(state);
      weights[2 * (lane % 4) + (j & 1) + 8 * ((j >> 1) & 1)][warp * 16 + lane / 4 + 8 * (j >> 2)] =
          ToFloat(value);
    }
    __syncthreads();
    AddKTile(job, work, k_tile, column, weights, sums);
  }
#pragma unroll
  for (int i = 0; i < kItemsPerThread; ++i) totals[2 * i + threadIdx.x / 128][column] = sums[i];
  __syncthreads();
  for (int item = warp; item < job.items; item += kWarps) {
    float v[4];
    for (int j = 0; j < 4; ++j) v[j] = totals[item][4 * lane + j];
    WarpFwht128(v);
    const float scale = work.scales[job.first_item + item];
    const int n = static_cast<int>(blockIdx.x) * 128 + 4 * lane;
    for (int j = 0; j < 4; ++j) {
      job.y[item * job.y_stride + n + j] = (v[j] * scale) * ToFloat(matrix.svh[n + j]);
    }
  }
}

}  // namespace

void LaunchPrepareRows(const LinearJobs& jobs, const LinearWorkspace& work, const Queue& queue) {
  const dim3 grid(static_cast<unsigned>(jobs.max_items), static_cast<unsigned>(jobs.job_count));
  const auto kernel = jobs.is_gated ? PrepareRowsKernel<true> : PrepareRowsKernel<false>;
  const int k = InputsOf(jobs);
  Launch(queue, kernel, grid, PrepareThreads(k), PrepareSharedBytes(k), jobs, work);
}

void LaunchIntegerGemm(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                       const Queue& queue) {
  if (bits <= 2) return LaunchIntegerGemm12(bits, jobs, work, splits, queue);
  if (bits <= 4) return LaunchIntegerGemm34(bits, jobs, work, splits, queue);
  if (bits <= 6) return LaunchIntegerGemm56(bits, jobs, work, splits, queue);
  LaunchIntegerGemm78(bits, jobs, work, splits, queue);
}

void LaunchListGemm(int bits, const LinearJobs& jobs, const LinearWorkspace& work,
                    int multiprocessors, const Queue& queue) {
  if (bits <= 2) return LaunchListGemm12(bits, jobs, work, multiprocessors, queue);
  if (bits <= 4) return LaunchListGemm34(bits, jobs, work, multiprocessors, queue);
  if (bits <= 6) return LaunchListGemm56(bits, jobs, work, multiprocessors, queue);
  LaunchListGemm78(bits, jobs, work, multiprocessors, queue);
}

void LaunchHalfGemm(const LinearJobs& jobs, const LinearWorkspace& work, const Queue& queue) {
  const unsigned job_count = static_cast<unsigned>(jobs.job_count);
  Launch(queue, PrepareHalvesKernel, dim3(static_cast<unsigned>(jobs.max_items), job_count),
         kThreads, 0, jobs, work);
  Launch(queue, HalfGemmKernel, dim3(static_cast<unsigned>(jobs.max_outputs / 128), job_count),
         kThreads, 0, jobs, work);
}

cudaError_t PreloadLinear() {
#define TP2_LINEAR
#include "libcore/ops/cuda/kernel_list.inc"
  for (const auto kernel : {PrepareRowsKernel<false>, PrepareRowsKernel<true>}) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(float) * kHeldInputs);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t PreloadKernels() {
  for (const auto preload :
       {PreloadLinear, PreloadLatents, PreloadRows, PreloadMix, PreloadAttention,
        PreloadGroupedOutput, PreloadMatVec, PreloadHead, PreloadExperts, PreloadRepack,
        PreloadIntegerGemm12, PreloadIntegerGemm34, PreloadIntegerGemm56, PreloadIntegerGemm78}) {
    if (const cudaError_t error = preload(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace tp2::cuda
