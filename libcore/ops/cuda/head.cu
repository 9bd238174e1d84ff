// Behind the head: Markov bias and best two of the vocabulary, their exchange between ranks.
#include <algorithm>

#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/matvec.cuh"
#include "libcore/ops/cuda/preload.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kOutputsPerWarp = 8;

// With or without the second best: what a plain draft leaves out.
template <bool kTwo>
struct BestOf {
  __device__ static void TakeInto(TopTwo& best, Scored candidate) {
    if constexpr (kTwo) {
      Take(best, candidate);
    } else if (Beats(candidate, best.first)) {
      best.first = candidate;
    }
  }
  __device__ static TopTwo Merged(const TopTwo& a, const TopTwo& b) {
    if constexpr (kTwo) return Merge(a, b);
    return {Beats(a.first, b.first) ? a.first : b.first, kNoScore};
  }
  __device__ static TopTwo MergedAcross(const TopTwo& best, int distance) {
    TopTwo other = {ShuffleXor(best.first, distance), kNoScore};
    if constexpr (kTwo) other.second = ShuffleXor(best.second, distance);
    return Merged(best, other);
  }
  __device__ static Scored ShuffleXor(Scored value, int distance) {
    return {__shfl_xor_sync(kAllLanes, value.score, distance),
            __shfl_xor_sync(kAllLanes, value.token, distance)};
  }
};

// score = base + bf16(term) into best.
template <bool kTwo>
__device__ void TakeScore(const MarkovLaunch& args, int request, int v, float base, float term,
                          TopTwo& best) {
  if (args.bias != nullptr) args.bias[static_cast<int64_t>(request) * args.head.rows + v] = term;
  const float score = base + RoundToBf16(term);
  if (score != score) {
    LatchError(args.error, KernelError::kMarkovNan);
    return;
  }
  BestOf<kTwo>::TakeInto(best, {score, args.vocab_begin + v});
}

__device__ void StoreChoice(const ChoiceTarget& to, int request, TopTwo best) {
  // Only after a logit that was not a number, which the latch has noted: keep later look-ups in
  // range.
  if (best.first.token == kNoScore.token) best = {{0.0f, 0}, {0.0f, 0}};
  to.token[request * to.token_stride] = best.first.token;
  if (to.margin == nullptr) return;
  to.runner_up[request * to.result_stride] = best.second.token;
  to.margin[request * to.result_stride] = best.first.score - best.second.score;
}

__device__ TopTwo LoadBest(const TopTwo* from) {
  static_assert(sizeof(TopTwo) == sizeof(int4));
  const int4 raw = __ldcg(reinterpret_cast<const int4*>(from));
  return {{__int_as_float(raw.x), raw.y}, {__int_as_float(raw.z), raw.w}};
}

// By the last block: the best of all blocks, a few warps per request.
template <bool kTwo>
__device__ void MergeBlocks(const MarkovLaunch& args, TopTwo (*warp_best)[32]) {
  constexpr int kWarpsPerRequest = kWarps / kMaxMarkovRequests;
  constexpr int kStride = 32 * kWarpsPerRequest;
  const int request = static_cast<int>(threadIdx.x) / kStride;
  const int blocks = static_cast<int>(gridDim.x);
  TopTwo merged = {kNoScore, kNoScore};
  if (request < args.requests) {
#pragma unroll 4
    for (int b = static_cast<int>(threadIdx.x) % kStride; b < blocks; b += kStride) {
      merged =
          BestOf<kTwo>::Merged(merged, LoadBest(args.block_best + b * args.requests + request));
    }
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    merged = BestOf<kTwo>::MergedAcross(merged, distance);
  }
  if (threadIdx.x % 32 == 0) warp_best[threadIdx.x / 32][0] = merged;
  __syncthreads();
  if (request >= args.requests || threadIdx.x % kStride != 0) return;
  for (int w = 1; w < kWarpsPerRequest; ++w) {
    merged = BestOf<kTwo>::Merged(merged, warp_best[threadIdx.x / 32 + w][0]);
  }
  args.best[request] = merged;
  if (args.choice.token != nullptr) StoreChoice(args.choice, request, merged);
}

// The lane's weights of a warp's group of vocabulary rows, one sweep of the columns.
struct GroupWeights {
  Half16Form::Raw raw[kOutputsPerWarp];

  __device__ void Load(const Half16Form& form, int first, int vocab, int k) {
    if (first >= vocab || k >= form.columns) return;
#pragma unroll
    for (int o = 0; o < kOutputsPerWarp; ++o) raw[o] = form.Load(min(first + o, vocab - 1), k);
  }
};

// Blocks of a multiprocessor that registers leave room for; a grid is one wave of them, since each
// wave waits for the embedded tokens anew. Below sm_90 four requests leave room for one block, and
// the grid, which the host sizes, is two waves.
template <int kRequests>
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kMarkovBlocksOf = kRequests == 1   ? 3
                                : kRequests == 2 ? 2
                                                 : 1;
#else
constexpr int kMarkovBlocksOf = kRequests == 1 ? 3 : 2;
#endif

// Each warp takes groups of 8 vocabulary rows; a lane keeps the best two of the (row, request) sums
// that end up in it. A group's first weights are requested as soon as the last group's are used,
// before its sums meet. block_best[block][request]. Dynamic shared memory: the embedded previous
// tokens [requests][rank]; rank <= kReduceSegment.
// BITS: the order of (score, token) is total, so the order of merging cannot matter.
template <int kRequests, bool kTwo>
__global__ void __launch_bounds__(kThreads, kMarkovBlocksOf<kRequests>)
    MarkovKernel(const __grid_constant__ MarkovLaunch args) {
  TP2_DYNAMIC_SHARED(float, embedded);
  __shared__ TopTwo warp_best[kWarps][32];
  __shared__ bool is_last;
  constexpr int kSums = kSumCount<kOutputsPerWarp, kRequests>;
  constexpr int kSweep = kReduceLanes * Half16Form::kWidth;
  const int columns = args.embed.columns;
  const Half16Form form = {args.head.bits, args.head.is_fp16, columns};
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int k = lane * Half16Form::kWidth;
  const int vocab = args.head.rows;
  const int groups = (vocab + kOutputsPerWarp - 1) / kOutputsPerWarp;
  const int stride = static_cast<int>(gridDim.x) * kWarps;
  int group = static_cast<int>(blockIdx.x) * kWarps + warp;
  const auto first_of = [&](int g) {
    return kOutputsPerWarp * (args.is_reversed && g < groups ? groups - 1 - g : g);
  };
  GroupWeights weights = {};
  weights.Load(form, first_of(group), vocab, k);
  AwaitPredecessor();
  for (int i = threadIdx.x; i < args.requests * columns; i += kThreads) {
    const int64_t token = args.previous[i / columns * args.previous_stride];
    embedded[i] = Half16At(args.embed, token * columns + i % columns);
  }
  __syncthreads();
  const int request = WarpSumIndex<kSums>() % kRequests;
  const int output = WarpSumIndex<kSums>() / kRequests;
  const bool takes = WarpSumIsMain<kSums>() && request < args.requests;
  TopTwo best = {kNoScore, kNoScore};
  for (; group < groups; group += stride) {
    const int first = first_of(group);
    const int v = first + output;
    const bool is_taken = takes && v < vocab;
    const float base = is_taken ? args.base[request * args.base_stride + v] : 0.0f;
    float sums[kSums] = {};
#pragma unroll 1
    for (int sweep = 0; sweep < columns; sweep += kSweep) {
      if (sweep > 0) weights.Load(form, first, vocab, sweep + k);
      if (sweep + k < columns) {
        AddRaw<kOutputsPerWarp, kRequests>(form, weights.raw, embedded, columns, args.requests,
                                           sweep + k, sums);
      }
    }
    weights.Load(form, first_of(group + stride), vocab, k);
    const float term = WarpSumMany(sums);
    if (is_taken) TakeScore<kTwo>(args, request, v, base, term, best);
  }
  warp_best[warp][lane] = best;
  __syncthreads();
  if (warp == 0) {
    for (int w = 1; w < kWarps; ++w) best = BestOf<kTwo>::Merged(best, warp_best[w][lane]);
    // The three highest lane bits number outputs, the ones below them requests.
    for (int distance = 16; distance >= 4; distance /= 2) {
      best = BestOf<kTwo>::MergedAcross(best, distance);
    }
    if (lane < 4 && takes) args.block_best[blockIdx.x * args.requests + request] = best;
    __syncwarp();
    if (lane == 0) is_last = IsLastArrival(args.arrivals, gridDim.x);
  }
  __syncthreads();
  if (is_last) MergeBlocks<kTwo>(args, warp_best);
}

__global__ void ExchangeKernel(const __grid_constant__ ExchangeLaunch args) {
  AwaitPredecessor();
  const int request = threadIdx.x;
  if (request >= args.requests) return;
  TopTwo best = args.best[0][request];
  if (args.side_count == 2) best = Merge(best, args.best[1][request]);
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    if (s < args.side_count) StoreChoice(args.targets[s], request, best);
  }
}

}  // namespace

namespace {

template <int kRequests, bool kTwo>
void LaunchMarkovOf(const MarkovLaunch& args, const Queue& queue) {
  const int per_block = kWarps * kOutputsPerWarp;
  const int needed = (args.head.rows + per_block - 1) / per_block;
  const int wave = kMarkovBlocksOf<kRequests> * args.multiprocessors;
  const int blocks = std::min({needed, wave, kMarkovBlocks});
  const size_t shared_bytes = sizeof(float) * args.requests * args.embed.columns;
  Launch(queue, MarkovKernel<kRequests, kTwo>, blocks, kThreads, shared_bytes, args);
}

template <bool kTwo>
void LaunchMarkovFor(const MarkovLaunch& args, const Queue& queue) {
  if (args.requests == 1) return LaunchMarkovOf<1, kTwo>(args, queue);
  if (args.requests == 2) return LaunchMarkovOf<2, kTwo>(args, queue);
  LaunchMarkovOf<4, kTwo>(args, queue);
}

}  // namespace

void LaunchMarkov(const MarkovLaunch& args, const Queue& queue) {
  if (args.wants_second) return LaunchMarkovFor<true>(args, queue);
  LaunchMarkovFor<false>(args, queue);
}

void LaunchExchange(const ExchangeLaunch& args, const Queue& queue) {
  Launch(queue, ExchangeKernel, 1, 32, 0, args);
}

cudaError_t PreloadHead() {
#define TP2_HEAD
#include "libcore/ops/cuda/kernel_list.inc"
  return cudaSuccess;
}

}  // namespace tp2::cuda
