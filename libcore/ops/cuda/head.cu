// Behind the head: Markov bias and best two of the vocabulary, their exchange between ranks.
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/matvec.cuh"
#include "libcore/ops/cuda/preload.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kOutputsPerWarp = 4;
constexpr int kMaxRequestsInPass = 4;

// score = base + bf16(term), into the request's best two; every lane does the same.
__device__ void TakeScore(const MarkovLaunch& args, int request, int v, float term, TopTwo& best) {
  if (args.bias != nullptr && threadIdx.x % 32 == 0) {
    args.bias[static_cast<int64_t>(request) * args.head.rows + v] = term;
  }
  const float score = args.base[request * args.base_stride + v] + RoundToBf16(term);
  if (score != score) {
    if (threadIdx.x % 32 == 0) atomicCAS(args.error, 0, static_cast<int>(KernelError::kMarkovNan));
    return;
  }
  Take(best, {score, args.vocab_begin + v});
}

// Each warp takes groups of 4 vocabulary rows; block_best[block][request]. Dynamic shared memory:
// the embedded previous tokens [requests][rank].
// BITS: the order of (score, token) is total, so the order of merging cannot matter.
__global__ void __launch_bounds__(kThreads)
    MarkovKernel(const __grid_constant__ MarkovLaunch args) {
  extern __shared__ __align__(16) float embedded[];
  __shared__ TopTwo warp_best[kWarps][kMaxRequestsInPass];
  const int columns = args.embed.columns;
  for (int i = threadIdx.x; i < args.requests * columns; i += kThreads) {
    const int64_t token = args.previous[i / columns * args.previous_stride];
    embedded[i] = Half16At(args.embed, token * columns + i % columns);
  }
  __syncthreads();
  const Half16Form form = {args.head.bits, args.head.is_fp16, columns};
  TopTwo best[kMaxRequestsInPass];
#pragma unroll
  for (int r = 0; r < kMaxRequestsInPass; ++r) best[r] = {kNoScore, kNoScore};
  const int warp = static_cast<int>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int vocab = args.head.rows;
  for (int first = warp * kOutputsPerWarp; first < vocab;
       first += static_cast<int>(gridDim.x) * kWarps * kOutputsPerWarp) {
    int rows[kOutputsPerWarp];
#pragma unroll
    for (int o = 0; o < kOutputsPerWarp; ++o) rows[o] = min(first + o, vocab - 1);
    float totals[kOutputsPerWarp][kMaxRequestsInPass];
    WarpMatVec(form, columns, rows, embedded, columns, args.requests, totals);
#pragma unroll
    for (int o = 0; o < kOutputsPerWarp; ++o) {
      if (first + o >= vocab) break;
#pragma unroll
      for (int r = 0; r < kMaxRequestsInPass; ++r) {
        if (r < args.requests) TakeScore(args, r, first + o, totals[o][r], best[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kMaxRequestsInPass; ++r) {
    if (threadIdx.x % 32 == 0) warp_best[threadIdx.x / 32][r] = best[r];
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= args.requests) return;
  TopTwo merged = warp_best[0][threadIdx.x];
  for (int w = 1; w < kWarps; ++w) merged = Merge(merged, warp_best[w][threadIdx.x]);
  args.block_best[blockIdx.x * args.requests + threadIdx.x] = merged;
}

__device__ TopTwo ShuffleXor(const TopTwo& best, int distance) {
  return {{__shfl_xor_sync(kAllLanes, best.first.score, distance),
           __shfl_xor_sync(kAllLanes, best.first.token, distance)},
          {__shfl_xor_sync(kAllLanes, best.second.score, distance),
           __shfl_xor_sync(kAllLanes, best.second.token, distance)}};
}

// One warp per request.
__global__ void __launch_bounds__(32)
    MergeBestKernel(const TopTwo* block_best, int blocks, int requests, TopTwo* best) {
  const int request = static_cast<int>(blockIdx.x);
  TopTwo merged = {kNoScore, kNoScore};
  for (int b = threadIdx.x; b < blocks; b += 32) {
    merged = Merge(merged, block_best[b * requests + request]);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    merged = Merge(merged, ShuffleXor(merged, distance));
  }
  if (threadIdx.x == 0) best[request] = merged;
}

__global__ void ExchangeKernel(const __grid_constant__ ExchangeLaunch args) {
  const int request = threadIdx.x;
  if (request >= args.requests) return;
  TopTwo best = args.sides[0].best[request];
  if (args.side_count == 2) best = Merge(best, args.sides[1].best[request]);
  // Only after a logit that was not a number, which the latch has noted: keep later look-ups in
  // range.
  if (best.first.token == kNoScore.token) best = {{0.0f, 0}, {0.0f, 0}};
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    if (s >= args.side_count) break;
    args.sides[s].token[request * args.token_stride] = best.first.token;
    args.sides[s].runner_up[request * args.result_stride] = best.second.token;
    args.sides[s].margin[request * args.result_stride] = best.first.score - best.second.score;
  }
}

}  // namespace

void LaunchMarkov(const MarkovLaunch& args, cudaStream_t stream) {
  const int per_block = kWarps * kOutputsPerWarp;
  const int needed = (args.head.rows + per_block - 1) / per_block;
  const int blocks = needed < kMarkovBlocks ? needed : kMarkovBlocks;
  MarkovKernel<<<blocks, kThreads, sizeof(float) * args.requests * args.embed.columns, stream>>>(
      args);
  MergeBestKernel<<<args.requests, 32, 0, stream>>>(args.block_best, blocks, args.requests,
                                                    args.best);
}

void LaunchExchange(const ExchangeLaunch& args, cudaStream_t stream) {
  ExchangeKernel<<<1, 32, 0, stream>>>(args);
}

cudaError_t PreloadHead() {
#define TP2_HEAD
#include "libcore/ops/cuda/kernel_list.inc"
  return cudaSuccess;
}

}  // namespace tp2::cuda
