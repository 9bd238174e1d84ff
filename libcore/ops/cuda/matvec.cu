// Routing and confidence: canonical dot products with one 16-bit row a block.
#include "libcore/ops/cuda/matvec.cuh"

#include <algorithm>

#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/preload.cuh"
#include "libcore/ops/cuda/route.cuh"

namespace tp2::cuda {
namespace {

constexpr int kEight = Half16Form::kWidth;
constexpr int kSegmentEights = kReduceSegment<kEight> / kEight;

int SegmentsOf(int columns) {
  return (columns + kReduceSegment<kEight> - 1) / kReduceSegment<kEight>;
}

struct Eight {
  float4 low, high;
};

// A row in eights in shared memory. Their halves lie apart: neighbouring lanes' reads of
// neighbouring eights then meet in no bank.
struct EightsRow {
  float4* low;
  int count;

  __device__ Eight At(int i) const { return {low[i], low[count + i]}; }
  __device__ void Set(int i, const Eight& eight) const {
    low[i] = eight.low;
    low[count + i] = eight.high;
  }
};

__device__ Eight Widened(const uint4& raw, bool is_fp16) {
  const auto pair = [is_fp16](uint32_t bits, float& first, float& second) {
    if (is_fp16) return WidenHalves(bits, first, second);
    first = __uint_as_float(bits << 16);
    second = __uint_as_float(bits & 0xFFFF0000u);
  };
  Eight eight;
  pair(raw.x, eight.low.x, eight.low.y);
  pair(raw.y, eight.low.z, eight.low.w);
  pair(raw.z, eight.high.x, eight.high.y);
  pair(raw.w, eight.high.z, eight.high.w);
  return eight;
}

__device__ float AddEight(float sum, const Eight& w, const Eight& x) {
  sum = fmaf(w.low.x, x.low.x, sum);
  sum = fmaf(w.low.y, x.low.y, sum);
  sum = fmaf(w.low.z, x.low.z, sum);
  sum = fmaf(w.low.w, x.low.w, sum);
  sum = fmaf(w.high.x, x.high.x, sum);
  sum = fmaf(w.high.y, x.high.y, sum);
  sum = fmaf(w.high.z, x.high.z, sum);
  return fmaf(w.high.w, x.high.w, sum);
}

// One segment of a canonical dot by one warp; every lane gets it. x(i): its eight number i. A batch
// of them is requested at a time.
template <class X>
__device__ float SegmentDot(const EightsRow& weights, int segment, X x) {
  constexpr int kBatch = 4;
  const int first = segment * kSegmentEights + static_cast<int>(threadIdx.x) % 32;
  const int end = min(weights.count, (segment + 1) * kSegmentEights);
  float sum = 0.0f;
#pragma unroll 1
  for (int begin = first; begin < end; begin += kBatch * kReduceLanes) {
    Eight values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int at = begin + i * kReduceLanes;
      if (at < end) values[i] = x(at);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int at = begin + i * kReduceLanes;
      if (at < end) sum = AddEight(sum, weights.At(at), values[i]);
    }
  }
  return WarpButterfly(sum);
}

// Unsigned numbers in the order of the scores; above 0, which is no candidate's. Scores are never
// -0: the affinity in them is not negative.
__device__ unsigned ScoreKey(float score) {
  const unsigned bits = __float_as_uint(score);
  return max(1u, (bits >> 31) != 0 ? ~bits : bits | 0x80000000u);
}

struct Candidate {
  unsigned key;
  int expert;
  float affinity;
};

// The best of the lane's experts lane, lane + 32, ...; taken ones have a negative affinity.
__device__ Candidate LaneBest(int experts, const float* bias, const float* affinity) {
  constexpr int kBatch = 4;
  Candidate best = {0, experts, 0.0f};
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < experts; i += 32 * kBatch) {
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int e = i + 32 * j;
      const bool is_there = e < experts;
      const float value = is_there ? affinity[e] : -1.0f;
      const unsigned key = value < 0.0f ? 0 : ScoreKey(value + bias[is_there ? e : 0]);
      if (key > best.key) best = {key, e, value};
    }
  }
  return best;
}

// One row by one warp; shared: bias [experts] and affinity [experts], which it destroys.
// ChooseExperts of math/gate.h: GateBefore is a total order, so rounds of "best of what is left"
// choose what insertion chooses.
__device__ void ChooseRow(const RouterLaunch& args, int row, const float* bias, float* affinity) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Candidate own = {};
  int chosen = 0;  // of round `lane`
  float chosen_affinity = 0.0f;
  float sum = 0.0f;
  bool is_stale = true;
#pragma unroll 1
  for (int i = 0; i < args.top_k; ++i) {
    if (is_stale) own = LaneBest(args.experts, bias, affinity);
    const unsigned key = __reduce_max_sync(kAllLanes, own.key);
    const int expert = __reduce_min_sync(kAllLanes, own.key == key ? own.expert : args.experts);
    const float value = __shfl_sync(kAllLanes, own.affinity, expert % 32);
    sum = sum + value;
    is_stale = own.expert == expert;
    if (is_stale) affinity[expert] = -1.0f;
    if (lane == i) {
      chosen = expert;
      chosen_affinity = value;
    }
  }
  if (lane >= kMaxExpertsPerToken) return;
  args.choices[row].experts[lane] = chosen;
  args.choices[row].weights[lane] = (chosen_affinity / (sum + 1e-20f)) * args.route_scale;
}

// Affinities of `count` logits and the bias into shared memory; the next logit is on its way
// meanwhile.
__device__ void BringScores(const RouterLaunch& args, const float* logits, int count, float* bias,
                            float* affinity) {
  const int threads = static_cast<int>(blockDim.x);
  const int first = static_cast<int>(threadIdx.x);
  float next = first < count ? __ldcg(logits + first) : 0.0f;
#pragma unroll 1
  for (int e = first; e < args.experts; e += threads) bias[e] = args.bias[e];
#pragma unroll 1
  for (int i = first; i < count; i += threads) {
    const float logit = next;
    if (i + threads < count) next = __ldcg(logits + i + threads);
    float value = GateAffinity(logit);
    if (value != value) {
      LatchError(args.error, KernelError::kRouterNan);
      value = 0.0f;
    }
    affinity[i] = value;
  }
}

constexpr int kTileRows = 5;
constexpr int kMaxTileExperts = 8;
constexpr int kRouterWarps = 3 * kTileRows;  // one round for up to 6144 inputs
static_assert(32 * kTileRows >= kMaxRouteEntries, "one segment's threads group the rows");
constexpr int kMaxRouterExperts = 4096;  // that a config may have
constexpr int kMaxTileBytes = sizeof(float) * kTileRows * kMaxRouterExperts;
constexpr int kMaxSumsBytes = sizeof(float) * 4 * kTileRows * kMaxTileExperts;  // of 8192 inputs
constexpr int kMaxRouterBytes = kMaxTileBytes + sizeof(float) * kMaxRouterExperts + kMaxSumsBytes;

// By all threads, with a batch of a thread in flight.
__device__ void CopyToShared(const uint4* from, int count, uint4* to) {
  constexpr int kBatch = 6;
  const int threads = static_cast<int>(blockDim.x);
#pragma unroll 1
  for (int begin = static_cast<int>(threadIdx.x); begin < count; begin += kBatch * threads) {
    uint4 held[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) held[i] = from[min(begin + i * threads, count - 1)];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (begin + i * threads < count) to[begin + i * threads] = held[i];
    }
  }
}

// What a block takes: rows with experts.
struct RouterTile {
  int row, rows, expert, experts;

  __device__ RouterTile(const RouterLaunch& args, int tile_experts)
      : row(static_cast<int>(blockIdx.y) * kTileRows),
        rows(min(kTileRows, args.rows - row)),
        expert(static_cast<int>(blockIdx.x) * tile_experts),
        experts(min(tile_experts, args.experts - expert)) {}
};

// A lane's eights of a segment: one of each sweep.
struct LaneEights {
  int first, sweeps;

  __device__ LaneEights(int segment, int count)
      : first(segment * kSegmentEights + static_cast<int>(threadIdx.x) % 32),
        sweeps(min(kSweepsPerSegment, (count - first + kReduceLanes - 1) / kReduceLanes)) {}

  template <class T>
  __device__ void Bring(const T* row, T (&to)[kSweepsPerSegment]) const {
#pragma unroll
    for (int s = 0; s < kSweepsPerSegment; ++s) {
      if (s < sweeps) to[s] = row[first + s * kReduceLanes];
    }
  }
};

// A segment's canonical dots of a row with experts by one warp.
template <bool kIsFp16>
__device__ void AddExperts(const Eight (&x)[kSweepsPerSegment], const LaneEights& lane,
                           const uint4* gates, int count, int experts, float* sums) {
#pragma unroll 1
  for (int e = 0; e < experts; ++e) {
    uint4 raw[kSweepsPerSegment] = {};
    lane.Bring(gates + e * count, raw);
    float sum = 0.0f;
#pragma unroll
    for (int s = 0; s < kSweepsPerSegment; ++s) {
      const float more = AddEight(sum, Widened(raw[s], kIsFp16), x[s]);
      sum = s < lane.sweeps ? more : sum;
    }
    sum = WarpButterfly(sum);
    if (threadIdx.x % 32 == 0) sums[e] = sum;
  }
}

// By one warp, from the sums of segments.
__device__ void WriteLogits(const float* sums, int segments, const RouterTile& tile, float* logits,
                            int stride) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < tile.rows * tile.experts; i += 32) {
    const int r = i / tile.experts, e = i % tile.experts;
    const float* const parts = sums + r * tile.experts + e;
    float total = parts[0];
#pragma unroll 1
    for (int s = 1; s < segments; ++s) total = total + parts[s * kTileRows * tile.experts];
    logits[r * stride + e] = total;
  }
}

// Grid: x = tiles of experts, y = tiles of rows. The experts' weights come into shared memory; a
// warp takes a segment of a row at a time, which it holds in registers for all of them. The last
// block of a tile of rows chooses their experts, the last of these groups the rows. Dynamic shared
// memory: the weights, in their place later the affinities, then the bias, then the sums of
// segments.
__global__ void __launch_bounds__(32 * kRouterWarps)
    RouterKernel(const __grid_constant__ RouterLaunch args, int tile_experts) {
  TP2_DYNAMIC_SHARED(uint4, gates);
  __shared__ bool is_last;
  const RouterTile tile(args, tile_experts);
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  const int count = args.dim / kEight;  // eights of a row
  const int segments = (count + kSegmentEights - 1) / kSegmentEights;
  float* const affinity = reinterpret_cast<float*>(gates);
  float* const bias = affinity + max(tile_experts * args.dim / 2, kTileRows * args.experts);
  float* const sums = bias + args.experts;  // [segment][kTileRows][tile.experts]
  const int gate_count = tile.experts * count;
  const uint4* const gate = reinterpret_cast<const uint4*>(args.gate.bits) + tile.expert * count;
  PrefetchSpan(gate, static_cast<int>(sizeof(uint4)) * gate_count);
  PrefetchSpan(args.bias, static_cast<int>(sizeof(float)) * args.experts);
  if (args.route.rows > 0) {
    PrefetchSpan(args.route.experts + tile.expert,
                 static_cast<int>(sizeof(DeviceExpert)) * tile.experts);
  }
  AwaitPredecessor();
  // The last row stands in for those that are not there.
  const auto row_of = [&](int unit) {
    const int64_t row = tile.row + min(unit % kTileRows, tile.rows - 1);
    return reinterpret_cast<const Eight*>(args.x) + row * count;
  };
  Eight x[kSweepsPerSegment] = {};
  LaneEights(warp / kTileRows, count).Bring(row_of(warp), x);
  CopyToShared(gate, gate_count, gates);
  __syncthreads();
#pragma unroll 1
  for (int unit = warp; unit < segments * kTileRows; unit += warps) {
    const LaneEights eights(unit / kTileRows, count);
    if (unit != warp) eights.Bring(row_of(unit), x);
    float* const out = sums + unit * tile.experts;
    if (args.gate.is_fp16) {
      AddExperts<true>(x, eights, gates, count, tile.experts, out);
    } else {
      AddExperts<false>(x, eights, gates, count, tile.experts, out);
    }
  }
  __syncthreads();
  float* const logits = args.logits + static_cast<int64_t>(tile.row) * args.experts;
  if (warp == 0) {
    WriteLogits(sums, segments, tile, logits + tile.expert, args.experts);
    __syncwarp();
    if (threadIdx.x == 0) is_last = IsLastArrival(args.arrivals + blockIdx.y, gridDim.x);
  }
  __syncthreads();
  if (!is_last) return;
  BringScores(args, logits, tile.rows * args.experts, bias, affinity);
  __syncthreads();
  if (warp < tile.rows) ChooseRow(args, tile.row + warp, bias, affinity + warp * args.experts);
  if (args.route.rows == 0) return;
  __syncthreads();
  if (threadIdx.x == 0 && gridDim.y > 1) {
    is_last = IsLastArrival(args.arrivals + gridDim.y, gridDim.y);
  }
  __syncthreads();
  if (is_last) GroupRows(args.route, reinterpret_cast<RouteMemory*>(gates));
}

constexpr int kMaxConfidenceThreads = 1024;
constexpr int kMaxConfidenceColumns = 8192 + 2048;  // that a config may have
constexpr int kMaxConfidenceBytes = 2 * sizeof(float) * kMaxConfidenceColumns;

// One block per (request, row). All threads bring an eight of the weights and of the collapsed row
// or, behind it, of the fed token's embedding into shared memory; then a warp takes a segment.
// Dynamic shared memory: both rows.
__global__ void __launch_bounds__(kMaxConfidenceThreads)
    ConfidenceKernel(const __grid_constant__ ConfidenceLaunch args) {
  TP2_DYNAMIC_SHARED(float4, confidence_memory);
  __shared__ float sums[kMaxSegments];
  AwaitPredecessor();
  const int request = static_cast<int>(blockIdx.y);
  const int row = static_cast<int>(blockIdx.x);
  const int count = args.weight.columns / kEight, dim_count = args.dim / kEight;
  const EightsRow weights = {confidence_memory, count};
  const EightsRow joined = {confidence_memory + 2 * count, count};
  const auto* weight = reinterpret_cast<const uint4*>(args.weight.bits);
  const auto* xc = reinterpret_cast<const Eight*>(
      args.xc + (static_cast<int64_t>(request) * args.n_out + row) * args.dim);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    const uint4 raw = weight[i];
    if (i < dim_count) {
      joined.Set(i, xc[i]);
    } else {
      const int64_t token = args.fed[request * args.fed_stride + row];
      const auto* embedding =
          reinterpret_cast<const uint4*>(args.embed.bits + token * args.embed.columns);
      joined.Set(i, Widened(embedding[i - dim_count], args.embed.is_fp16));
    }
    weights.Set(i, Widened(raw, args.weight.is_fp16));
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  const int segments = (count + kSegmentEights - 1) / kSegmentEights;
#pragma unroll 1
  for (int s = warp; s < segments; s += warps) {
    const float sum = SegmentDot(weights, s, [&joined](int at) { return joined.At(at); });
    if (threadIdx.x % 32 == 0) sums[s] = sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = sums[0];
#pragma unroll 1
  for (int s = 1; s < segments; ++s) total = total + sums[s];
  args.logits[request * args.block_rows + row] = total;
}

}  // namespace

void LaunchRouter(const RouterLaunch& args, const Queue& queue) {
  // So many experts a block that the card takes all blocks at once.
  const int row_tiles = (args.rows + kTileRows - 1) / kTileRows;
  const int wanted = (args.experts * row_tiles + args.multiprocessors - 1) / args.multiprocessors;
  const int row_bytes = static_cast<int>(sizeof(uint16_t)) * args.dim;
  const int experts = std::clamp(wanted, 1, std::min(kMaxTileExperts, kMaxTileBytes / row_bytes));
  const dim3 grid(static_cast<unsigned>((args.experts + experts - 1) / experts),
                  static_cast<unsigned>(row_tiles));
  const int units = kTileRows * SegmentsOf(args.dim);
  const int shared =
      std::max(experts * args.dim / 2, kTileRows * args.experts) + args.experts + units * experts;
  Launch(queue, RouterKernel, grid, 32 * std::min(kRouterWarps, units),
         std::max(sizeof(float) * shared, sizeof(RouteMemory)), args, experts);
}

void LaunchConfidence(const ConfidenceLaunch& args, const Queue& queue) {
  const dim3 grid(static_cast<unsigned>(args.n_out), static_cast<unsigned>(args.requests));
  const int columns = args.weight.columns;
  const int threads = std::min(kMaxConfidenceThreads, (columns / kEight + 31) / 32 * 32);
  Launch(queue, ConfidenceKernel, grid, threads, 2 * sizeof(float) * columns, args);
}

cudaError_t PreloadMatVec() {
#define TP2_MATVEC
#include "libcore/ops/cuda/kernel_list.inc"
  const cudaError_t error = cudaFuncSetAttribute(
      RouterKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxRouterBytes);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(ConfidenceKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kMaxConfidenceBytes);
}

}  // namespace tp2::cuda
