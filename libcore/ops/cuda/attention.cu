// Sink attention of one row and a few heads per block: scores, softmax with the sink, weighted sum
// in ascending key order, inverse rotation.
#include "libcore/math/transcendental.h"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/preload.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kKeys = 2;  // of a warp's scores at a time

// Keys of the weighted sum at a time: as many as there are registers for.
template <int kHeads>
constexpr int kBatchOf = kHeads > 2 ? 8 : 16;

constexpr int PaddedKeys(int count) {
  constexpr int kMost = kBatchOf<1>;
  return (count + kMost - 1) / kMost * kMost;
}

// One key's scores with the heads of a block, which share its loads.
template <int kHeads>
struct alignas(kHeads * sizeof(float)) HeadScores {
  float of[kHeads];
};

// Where the keys of a request lie: its window in ascending position, then its block rows, then the
// last one again up to PaddedKeys.
__device__ void ListKeys(const AttentionLaunch& args, int request, const WindowRows& window,
                         const Bf16** keys) {
  const Bf16* ring = args.rings + static_cast<int64_t>(window.slot) * args.ring_rows * args.dims;
  const Bf16* block = args.block_kv + static_cast<int64_t>(request) * args.block_rows * args.dims;
  const int first_row = static_cast<int>(window.begin % args.ring_rows);
  const int count = window.row_count + args.block_rows;
  for (int i = static_cast<int>(threadIdx.x); i < PaddedKeys(count); i += kThreads) {
    const int j = min(i, count - 1);
    const int row = first_row + j;
    keys[i] = j >= window.row_count
                  ? block + (j - window.row_count) * args.dims
                  : ring + (row < args.ring_rows ? row : row - args.ring_rows) * args.dims;
  }
}

// BITS: SinkSoftmax of the CPU op set: scale, maximum with the sink, exponentials, canonical sum
// with V = 1. By one warp; returns the reciprocal of the sum in every lane.
template <int kHeads>
__device__ float WarpSinkSoftmax(HeadScores<kHeads>* scores, int head, int key_count, float scale,
                                 float sink) {
  const int lane = threadIdx.x % 32;
  float largest = sink;
  for (int j = lane; j < key_count; j += 32) {
    float& score = scores[j].of[head];
    score = score * scale;
    largest = fmaxf(largest, score);
  }
  largest = WarpMax(largest);
  for (int j = lane; j < key_count; j += 32) {
    scores[j].of[head] = Exp(scores[j].of[head] - largest);
  }
  __syncwarp();
  const float sum = WarpReduce<1>(
      key_count, [scores, head](float acc, int k) { return acc + scores[k].of[head]; });
  return 1.0f / (sum + Exp(sink - largest));
}

__device__ void Widen(uint32_t pair, float& low, float& high) {
  low = ToFloat(Bf16{static_cast<uint16_t>(pair & 0xFFFFu)});
  high = ToFloat(Bf16{static_cast<uint16_t>(pair >> 16)});
}

// The lane's part of a warp's keys: dims is at most 512, two sweeps of 256.
struct KeyParts {
  uint4 raw[kKeys][2];

  __device__ void Load(const Bf16* const* keys, int first, int dims) {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const Bf16* row = keys[first + i];
#pragma unroll
      for (int sweep = 0; sweep < 2; ++sweep) {
        const int k = sweep * 256 + static_cast<int>(threadIdx.x) % 32 * 8;
        if (k < dims) raw[i][sweep] = *reinterpret_cast<const uint4*>(row + k);
      }
    }
  }
};

// The lane's part of a block's queries.
template <int kHeads>
struct QueryParts {
  float of[kHeads][2][8];

  __device__ void Load(const float* q, int dims) {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int sweep = 0; sweep < 2; ++sweep) {
        const int k = sweep * 256 + static_cast<int>(threadIdx.x) % 32 * 8;
        if (k >= dims) break;
        const auto* from = reinterpret_cast<const float4*>(q + static_cast<int64_t>(h) * dims + k);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float4 four = from[half];
          of[h][sweep][4 * half] = four.x;
          of[h][sweep][4 * half + 1] = four.y;
          of[h][sweep][4 * half + 2] = four.z;
          of[h][sweep][4 * half + 3] = four.w;
        }
      }
    }
  }
  // Those of the last dims are rotated. plain: dims in front of them, an even number.
  __device__ void Rotate(const CosSin* table, int plain, int dims) {
    ForEachRotated(plain, dims, [table, plain](int k, float& a, float& b, int) {
      RopePair(table[(k - plain) / 2], a, b);
    });
  }
  __device__ void StoreRotated(float* q, int plain, int dims) {
    ForEachRotated(plain, dims, [q, dims](int k, float& a, float& b, int h) {
      *reinterpret_cast<float2*>(q + static_cast<int64_t>(h) * dims + k) = {a, b};
    });
  }

 private:
  template <class F>
  __device__ void ForEachRotated(int plain, int dims, F visit) {
#pragma unroll
    for (int sweep = 0; sweep < 2; ++sweep) {
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        const int k = sweep * 256 + static_cast<int>(threadIdx.x) % 32 * 8 + i;
        if (k < plain || k >= dims) continue;
#pragma unroll
        for (int h = 0; h < kHeads; ++h) visit(k, of[h][sweep][i], of[h][sweep][i + 1], h);
      }
    }
  }
};

// scores[j].of[h] = key j . query h for this warp's keys; the next keys are on their way.
template <int kHeads>
__device__ void ScoreKeys(const Bf16* const* keys, int key_count, int dims,
                          const QueryParts<kHeads>& query, HeadScores<kHeads>* scores) {
  const int lane = threadIdx.x % 32;
  constexpr int kSums = kKeys * kHeads;
  const int key = WarpSumIndex<kSums>() / kHeads;
  const int head = WarpSumIndex<kSums>() % kHeads;
  int first = static_cast<int>(threadIdx.x) / 32 * kKeys;
  KeyParts next;
  if (first < key_count) next.Load(keys, first, dims);
#pragma unroll 1
  for (; first < key_count; first += kWarps * kKeys) {
    const KeyParts now = next;
    if (first + kWarps * kKeys < key_count) next.Load(keys, first + kWarps * kKeys, dims);
    float sums[kSums] = {};
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
#pragma unroll
      for (int sweep = 0; sweep < 2; ++sweep) {
        if (sweep * 256 + lane * 8 >= dims) continue;
        const uint4& raw = now.raw[i][sweep];
        float w[8];
        Widen(raw.x, w[0], w[1]);
        Widen(raw.y, w[2], w[3]);
        Widen(raw.z, w[4], w[5]);
        Widen(raw.w, w[6], w[7]);
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          float& sum = sums[i * kHeads + h];
#pragma unroll
          for (int n = 0; n < 8; ++n) sum = fmaf(w[n], query.of[h][sweep][n], sum);
        }
      }
    }
    const float dot = WarpSumMany(sums);
    if (WarpSumIsMain<kSums>() && first + key < key_count) {
      scores[first + key].of[head] = dot;
    }
  }
}

// a[h], b[h] = sum of scores[j].of[h] times elements d and d + 1 of key j, ascending; the next keys
// are on their way.
template <int kHeads>
__device__ void WeighKeys(const Bf16* const* keys, int key_count, int d,
                          const HeadScores<kHeads>* scores, float (&a)[kHeads],
                          float (&b)[kHeads]) {
  constexpr int kBatch = kBatchOf<kHeads>;
  uint32_t next[kBatch];
  const auto load = [&](int begin) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      next[i] = *reinterpret_cast<const uint32_t*>(keys[begin + i] + d);
    }
  };
  const auto add = [&](uint32_t pair, const HeadScores<kHeads>& score) {
    float low, high;
    Widen(pair, low, high);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      a[h] = fmaf(score.of[h], low, a[h]);
      b[h] = fmaf(score.of[h], high, b[h]);
    }
  };
  load(0);
  int begin = 0;
#pragma unroll 1
  for (; begin + kBatch <= key_count; begin += kBatch) {
    uint32_t now[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) now[i] = next[i];
    if (begin + kBatch < key_count) load(begin + kBatch);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) add(now[i], scores[begin + i]);
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    if (begin + i < key_count) add(next[i], scores[begin + i]);
  }
}

// Grid: x = groups of kHeads heads, y = rows of all requests. Dynamic shared memory: where the keys
// lie, then their scores.
template <int kHeads>
__global__ void __launch_bounds__(kThreads, 2)
    AttentionKernel(const __grid_constant__ AttentionLaunch args) {
  AwaitPredecessor();
  TP2_DYNAMIC_SHARED(const Bf16*, keys);
  __shared__ float inverse[kHeads];
  const int row = static_cast<int>(blockIdx.y);
  const int head = static_cast<int>(blockIdx.x) * kHeads;
  const int request = row / args.block_rows;
  const int64_t offset = (static_cast<int64_t>(row) * args.heads + head) * args.dims;
  QueryParts<kHeads> query;
  query.Load(args.q + offset, args.dims);  // while the keys are listed
  const int plain = args.dims - args.rope_dims;
  const CosSin* table = args.rope + args.positions[row] * (args.rope_dims / 2);
  const WindowRows window = args.windows[request];
  const int key_count = window.row_count + args.block_rows;
  HeadScores<kHeads>* const scores =
      reinterpret_cast<HeadScores<kHeads>*>(keys + PaddedKeys(args.max_window + args.block_rows));
  ListKeys(args, request, window, keys);
  if (args.unrotated != nullptr) query.Rotate(table, plain, args.dims);
  __syncthreads();
  // All warps have read them by now.
  if (args.unrotated != nullptr && threadIdx.x < 32) {
    query.StoreRotated(args.unrotated + offset, plain, args.dims);
  }
  ScoreKeys(keys, key_count, args.dims, query, scores);
  __syncthreads();
  if (const int h = static_cast<int>(threadIdx.x) / 32; h < kHeads) {
    const float value =
        WarpSinkSoftmax(scores, h, key_count, args.score_scale, args.sink[head + h]);
    if (threadIdx.x % 32 == 0) inverse[h] = value;
  }
  __syncthreads();
  for (int d = 2 * static_cast<int>(threadIdx.x); d < args.dims; d += 2 * kThreads) {
    float a[kHeads] = {}, b[kHeads] = {};
    WeighKeys(keys, key_count, d, scores, a, b);
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

template <int kHeads>
constexpr size_t SharedBytes(int keys) {
  return (sizeof(const Bf16*) + sizeof(HeadScores<kHeads>)) * PaddedKeys(keys);
}

template <int kHeads>
void LaunchAttentionOf(const AttentionLaunch& args, const Queue& queue) {
  const dim3 grid(static_cast<unsigned>(args.heads / kHeads),
                  static_cast<unsigned>(args.requests * args.block_rows));
  Launch(queue, AttentionKernel<kHeads>, grid, kThreads,
         SharedBytes<kHeads>(args.max_window + args.block_rows), args);
}

}  // namespace

// Four heads share the loads of a key, unless that leaves most multiprocessors without a block or
// the heads of a small model are no multiple of four.
void LaunchAttention(const AttentionLaunch& args, const Queue& queue) {
  const int blocks = args.heads / 4 * args.requests * args.block_rows;
  if (args.heads % 4 == 0 && 2 * blocks > args.multiprocessors) {
    return LaunchAttentionOf<4>(args, queue);
  }
  LaunchAttentionOf<kAttentionHeads>(args, queue);
}

cudaError_t PreloadAttention() {
#define TP2_ATTENTION
#include "libcore/ops/cuda/kernel_list.inc"
  const cudaError_t error =
      cudaFuncSetAttribute(AttentionKernel<2>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           SharedBytes<2>(kMaxAttentionKeys));
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(AttentionKernel<4>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              SharedBytes<4>(kMaxAttentionKeys));
}

}  // namespace tp2::cuda
