// Sink attention of one (row, head) per block: scores, softmax with the sink, weighted sum in
// ascending key order, inverse rotation.
#include "libcore/math/transcendental.h"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/preload.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// Key j of a request: its window in ascending position, then its block rows.
struct KeyRows {
  const Bf16* ring;
  const Bf16* block;
  int64_t begin;
  int window_rows, ring_rows, dims;

  __device__ const Bf16* operator[](int j) const {
    return j < window_rows ? ring + (begin + j) % ring_rows * dims
                           : block + static_cast<int64_t>(j - window_rows) * dims;
  }
};

// BITS: SinkSoftmax of the CPU op set: scale, maximum with the sink, exponentials, canonical sum
// with V = 1. Returns the reciprocal of the sum in every thread.
__device__ float BlockSinkSoftmax(float* scores, int key_count, float scale, float sink,
                                  float* segments) {
  __shared__ float warp_max[kWarps];
  float largest = sink;
  for (int j = threadIdx.x; j < key_count; j += kThreads) {
    scores[j] = scores[j] * scale;
    largest = fmaxf(largest, scores[j]);
  }
  largest = WarpMax(largest);
  if (threadIdx.x % 32 == 0) warp_max[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, warp_max[w]);
  for (int j = threadIdx.x; j < key_count; j += kThreads) scores[j] = Exp(scores[j] - largest);
  __syncthreads();
  const float sum = BlockReduce<1>(key_count, segments,
                                   [scores](float acc, int j) { return acc + scores[j]; });
  return 1.0f / (sum + Exp(sink - largest));
}

// Grid: x = heads, y = rows of all requests. Dynamic shared memory: the scores.
__global__ void __launch_bounds__(kThreads)
    AttentionKernel(const __grid_constant__ AttentionLaunch args) {
  extern __shared__ float scores[];
  __shared__ float segments[kMaxSegments];
  const int row = static_cast<int>(blockIdx.y);
  const int head = static_cast<int>(blockIdx.x);
  const int request = row / args.block_rows;
  const WindowRows window = args.windows[request];
  const KeyRows keys = {
      args.rings + static_cast<int64_t>(window.slot) * args.ring_rows * args.dims,
      args.block_kv + static_cast<int64_t>(request) * args.block_rows * args.dims,
      window.begin,
      window.row_count,
      args.ring_rows,
      args.dims};
  const int key_count = window.row_count + args.block_rows;
  const int64_t offset = (static_cast<int64_t>(row) * args.heads + head) * args.dims;
  const float* q = args.q + offset;
  for (int j = threadIdx.x / 32; j < key_count; j += kWarps) {
    const Bf16* key = keys[j];
    const float dot = WarpReduce<8>(
        args.dims, [q, key](float acc, int k) { return fmaf(ToFloat(key[k]), q[k], acc); });
    if (threadIdx.x % 32 == 0) scores[j] = dot;
  }
  __syncthreads();
  const float inverse =
      BlockSinkSoftmax(scores, key_count, args.score_scale, args.sink[head], segments);
  const int plain = args.dims - args.rope_dims;
  const CosSin* table = args.rope + args.positions[row] * (args.rope_dims / 2);
  float* o = args.o + offset;
  for (int d = 2 * threadIdx.x; d < args.dims; d += 2 * kThreads) {
    float a = 0.0f, b = 0.0f;
#pragma unroll 8
    for (int j = 0; j < key_count; ++j) {
      const uint32_t pair = *reinterpret_cast<const uint32_t*>(keys[j] + d);
      a = fmaf(scores[j], ToFloat(Bf16{static_cast<uint16_t>(pair & 0xFFFFu)}), a);
      b = fmaf(scores[j], ToFloat(Bf16{static_cast<uint16_t>(pair >> 16)}), b);
    }
    a = a * inverse;
    b = b * inverse;
    if (d >= plain) RopePairInverse(table[(d - plain) / 2], a, b);
    o[d] = a;
    o[d + 1] = b;
  }
}

}  // namespace

void LaunchAttention(const AttentionLaunch& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.heads),
                  static_cast<unsigned>(args.requests * args.block_rows));
  const size_t score_bytes = sizeof(float) * (args.max_window + args.block_rows);
  AttentionKernel<<<grid, kThreads, score_bytes, stream>>>(args);
}

cudaError_t PreloadAttention() {
#define TP2_ATTENTION
#include "libcore/ops/cuda/kernel_list.inc"
  return cudaSuccess;
}

}  // namespace tp2::cuda
