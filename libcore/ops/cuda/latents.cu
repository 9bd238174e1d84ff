// The two latents of an attention: the query's becomes the prepared input of wq_b, the other one a
// KV row.
#include <algorithm>

#include "libcore/math/fake_quant.h"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/norm.cuh"
#include "libcore/ops/cuda/preload.cuh"
#include "libcore/ops/cuda/prepare.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLatentsThreads = 512;

struct NormedRow {
  const float* x;
  DeviceHalf16 weight;
  float inverse;

  __device__ float4 Load(int k) const {
    return Normed(weight, k, *reinterpret_cast<const float4*>(x + k), inverse);
  }
};

// Norm if there is one, rotation, fake quantization and store of one row by one block. k_row:
// shared [dims].
__device__ void FinishKvRow(const KvFinishLaunch& args, int row, float* k_row, float* segments) {
  if (args.out_rows[row] < 0) return;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int pairs = args.rope_dims / 2;
  const int plain = args.dims - args.rope_dims;
  const float* x = args.x + static_cast<int64_t>(row) * args.dims;
  const bool is_normed = args.norm.bits == nullptr;
  const float inverse = is_normed ? 0.0f : BlockInverseRms(x, args.dims, args.eps, segments);
  for (int i = thread; i < args.dims; i += threads) {
    k_row[i] = is_normed ? x[i] : Half16At(args.norm, i) * (x[i] * inverse);
  }
  __syncthreads();
  const CosSin* table = args.rope + args.positions[row] * pairs;
  for (int i = thread; i < pairs; i += threads) {
    RopePair(table[i], k_row[plain + 2 * i], k_row[plain + 2 * i + 1]);
  }
  __syncthreads();
  const int lane = thread % 32;
  for (int begin = thread / 32 * args.quant_group; begin < args.quantized_dims;
       begin += threads / 32 * args.quant_group) {
    const int end = min(args.quantized_dims, begin + args.quant_group);
    float amax = 0.0f;
    for (int i = begin + lane; i < end; i += 32) amax = fmaxf(amax, fabsf(k_row[i]));
    const float scale = FakeQuantScale(WarpMax(amax));
    for (int i = begin + lane; i < end; i += 32) k_row[i] = FakeQuantValue(k_row[i], scale);
  }
  __syncthreads();
  Bf16* out = args.out + static_cast<int64_t>(args.out_rows[row]) * args.dims;
  for (int i = thread; i < args.dims; i += threads) out[i] = ToBf16(k_row[i]);
}

// One block per row; dynamic shared memory: the row.
__global__ void __launch_bounds__(kThreads) KvFinishKernel(const KvFinishLaunch args) {
  TP2_DYNAMIC_SHARED(float, k_row);
  __shared__ float segments[kMaxSegments];
  AwaitPredecessor();
  FinishKvRow(args, static_cast<int>(blockIdx.x), k_row, segments);
}

// Grid: x = rows, y = the query's latent, then the other one. Dynamic shared memory: the KV row, or
// what the query's transform holds. A matrix of the fp16 path takes the normed row from query.y.
__global__ void __launch_bounds__(kLatentsThreads, 2)
    LatentsKernel(const __grid_constant__ RmsNormLaunch query,
                  const __grid_constant__ LinearJobs jobs, const LinearWorkspace work,
                  const __grid_constant__ KvFinishLaunch kv) {
  TP2_DYNAMIC_SHARED(float4, shared);
  __shared__ float segments[kMaxSegments];
  const int row = static_cast<int>(blockIdx.x);
  const bool is_query = blockIdx.y == 0;
  PrefetchWeights(is_query ? query.weight : kv.norm);
  if (is_query) PrefetchSigns(jobs.few[0].matrix);
  AwaitPredecessor();
  if (!is_query) return FinishKvRow(kv, row, reinterpret_cast<float*>(shared), segments);
  const float* x = query.x + static_cast<int64_t>(row) * query.columns;
  const NormedRow source = {x, query.weight,
                            BlockInverseRms(x, query.columns, query.eps, segments)};
  float* y = query.y + static_cast<int64_t>(row) * query.columns;
#pragma unroll 1
  for (int k = 4 * static_cast<int>(threadIdx.x); k < query.columns; k += 4 * kLatentsThreads) {
    *reinterpret_cast<float4*>(y + k) = source.Load(k);
  }
  const LinearJob& job = jobs.few[0];
  if (job.matrix.codebook == kCodebookMul1) {
    PrepareInteger(job, work, PlaceOf(job, row), source, shared);
  }
}

}  // namespace

void LaunchKvFinish(const KvFinishLaunch& args, const Queue& queue) {
  Launch(queue, KvFinishKernel, args.rows, kThreads, sizeof(float) * args.dims, args);
}

void LaunchLatents(const RmsNormLaunch& query, const LinearJobs& jobs, const LinearWorkspace& work,
                   const KvFinishLaunch& kv, const Queue& queue) {
  const size_t shared_bytes =
      std::max(sizeof(float) * kv.dims, PrepareSharedBytes(jobs.few[0].matrix.k));
  Launch(queue, LatentsKernel, dim3(static_cast<unsigned>(query.rows), 2), kLatentsThreads,
         shared_bytes, query, jobs, work, kv);
}

cudaError_t PreloadLatents() {
#define TP2_LATENTS
#include "libcore/ops/cuda/kernel_list.inc"
  return cudaFuncSetAttribute(LatentsKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              sizeof(float) * kHeldInputs);
}

}  // namespace tp2::cuda
