// Sink attention of one row and two heads per block: scores, softmax with the sink, weighted sum in
// ascending key order, inverse rotation.
#include "libcore/math/transcendental.h"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/preload.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kHeads = kAttentionHeads;  // per block: they share the loads of the keys
constexpr int kKeys = 4;                 // in flight per warp

// Key j of a request: its window in ascending position, then its block rows.
struct KeyRows {
  const Bf16* ring;
  const Bf16* block;
  int first_row;  // ring row of key 0
  int window_rows, ring_rows, dims;

  __device__ const Bf16* operator[](int j) const {
    if (j >= window_rows) return block + (j - window_rows) * dims;
    const int row = first_row + j;
    return ring + (row < ring_rows ? row : row - ring_rows) * dims;
  }
};

// BITS: SinkSoftmax of the CPU op set: scale, maximum with the sink, exponentials, canonical sum
// with V = 1. By one warp; returns the reciprocal of the sum in every lane.
__device__ float WarpSinkSoftmax(float* scores, int key_count, float scale, float sink) {
  const int lane = threadIdx.x % 32;
  float largest = sink;
  for (int j = lane; j < key_count; j += 32) {
    scores[j] = scores[j] * scale;
    largest = fmaxf(largest, scores[j]);
  }
  largest = WarpMax(largest);
  for (int j = lane; j < key_count; j += 32) scores[j] = Exp(scores[j] - largest);
  __syncwarp();
  const float sum =
      WarpReduce<1>(key_count, [scores](float acc, int j) { return acc + scores[j]; });
  return 1.0f / (sum + Exp(sink - largest));
}

__device__ void Widen(uint32_t pair, float& low, float& high) {
  low = ToFloat(Bf16{static_cast<uint16_t>(pair & 0xFFFFu)});
  high = ToFloat(Bf16{static_cast<uint16_t>(pair >> 16)});
}

// scores[h][j] = key j . query h for this warp's keys; the queries stay in registers. dims is at
// most 512: two sweeps of 256.
__device__ void ScoreKeys(const AttentionLaunch& args, const KeyRows& keys, int key_count,
                          const float* q, float* scores, int score_stride) {
  const int lane = threadIdx.x % 32;
  float query[kHeads][2][8];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
#pragma unroll
    for (int sweep = 0; sweep < 2; ++sweep) {
      const int k = sweep * 256 + lane * 8;
      if (k >= args.dims) break;
#pragma unroll
      for (int i = 0; i < 8; ++i)
        query[h][sweep][i] = q[static_cast<int64_t>(h) * args.dims + k + i];
    }
  }
  constexpr int kSums = kKeys * kHeads;
  const int key = WarpSumIndex<kSums>() / kHeads;
  const int head = WarpSumIndex<kSums>() % kHeads;
  for (int first = static_cast<int>(threadIdx.x) / 32 * kKeys; first < key_count;
       first += kWarps * kKeys) {
    uint4 raw[kKeys][2];
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const Bf16* row = keys[min(first + i, key_count - 1)];
#pragma unroll
      for (int sweep = 0; sweep < 2; ++sweep) {
        const int k = sweep * 256 + lane * 8;
        if (k < args.dims) raw[i][sweep] = *reinterpret_cast<const uint4*>(row + k);
      }
    }
    float sums[kSums] = {};
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
#pragma unroll
      for (int sweep = 0; sweep < 2; ++sweep) {
        if (sweep * 256 + lane * 8 >= args.dims) continue;
        float w[8];
        Widen(raw[i][sweep].x, w[0], w[1]);
        Widen(raw[i][sweep].y, w[2], w[3]);
        Widen(raw[i][sweep].z, w[4], w[5]);
        Widen(raw[i][sweep].w, w[6], w[7]);
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          float& sum = sums[i * kHeads + h];
#pragma unroll
          for (int n = 0; n < 8; ++n) sum = fmaf(w[n], query[h][sweep][n], sum);
        }
      }
    }
    const float dot = WarpSumMany(sums);
    if (WarpSumIsMain<kSums>() && first + key < key_count) {
      scores[head * score_stride + first + key] = dot;
    }
  }
}

// Grid: x = pairs of heads, y = rows of all requests. Dynamic
// shared memory: the scores.
__global__ void __launch_bounds__(kThreads)
    AttentionKernel(const __grid_constant__ AttentionLaunch args) {
  AwaitPredecessor();
  TP2_DYNAMIC_SHARED(float, scores);
  __shared__ float inverse[kHeads];
  const int row = static_cast<int>(blockIdx.y);
  const int head = static_cast<int>(blockIdx.x) * kHeads;
  const int request = row / args.block_rows;
  const WindowRows window = args.windows[request];
  const KeyRows keys = {args.rings + static_cast<int64_t>(window.slot) * args.ring_rows * args.dims,
                        args.block_kv + static_cast<int64_t>(request) * args.block_rows * args.dims,
                        static_cast<int>(window.begin % args.ring_rows),
                        window.row_count,
                        args.ring_rows,
                        args.dims};
  const int key_count = window.row_count + args.block_rows;
  const int score_stride = args.max_window + args.block_rows;
  const int64_t offset = (static_cast<int64_t>(row) * args.heads + head) * args.dims;
  ScoreKeys(args, keys, key_count, args.q + offset, scores, score_stride);
  __syncthreads();
  if (const int h = static_cast<int>(threadIdx.x) / 32; h < kHeads) {
    const float value = WarpSinkSoftmax(scores + h * score_stride, key_count, args.score_scale,
                                        args.sink[head + h]);
    if (threadIdx.x % 32 == 0) inverse[h] = value;
  }
  __syncthreads();
  const int plain = args.dims - args.rope_dims;
  const CosSin* table = args.rope + args.positions[row] * (args.rope_dims / 2);
  for (int d = 2 * static_cast<int>(threadIdx.x); d < args.dims; d += 2 * kThreads) {
    float a[kHeads] = {}, b[kHeads] = {};
#pragma unroll 8
    for (int j = 0; j < key_count; ++j) {
      float low, high;
      Widen(*reinterpret_cast<const uint32_t*>(keys[j] + d), low, high);
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        a[h] = fmaf(scores[h * score_stride + j], low, a[h]);
        b[h] = fmaf(scores[h * score_stride + j], high, b[h]);
      }
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      a[h] = a[h] * inverse[h];
      b[h] = b[h] * inverse[h];
      if (d >= plain) RopePairInverse(table[(d - plain) / 2], a[h], b[h]);
      float* o = args.o + offset + static_cast<int64_t>(h) * args.dims + d;
      o[0] = a[h];
      o[1] = b[h];
    }
  }
}

}  // namespace

void LaunchAttention(const AttentionLaunch& args, const Queue& queue) {
  const dim3 grid(static_cast<unsigned>(args.heads / kHeads),
                  static_cast<unsigned>(args.requests * args.block_rows));
  const size_t score_bytes = sizeof(float) * kHeads * (args.max_window + args.block_rows);
  Launch(queue, AttentionKernel, grid, kThreads, score_bytes, args);
}

cudaError_t PreloadAttention() {
#define TP2_ATTENTION
#include "libcore/ops/cuda/kernel_list.inc"
  return cudaSuccess;
}

}  // namespace tp2::cuda
