// The grouped output projection, routing and confidence: canonical dot products.
#include "libcore/ops/cuda/matvec.cuh"

#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/preload.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kRowChunk = 5;

constexpr int kSweepInputs = kReduceLanes * Fp8Form::kWidth;

// Rows of x for one sweep of the canonical order in shared memory, as the lanes read them: piece
// `quarter` of lane `lane` is x[16 lane + 4 quarter ..]. The pitch spreads the pieces over banks.
template <int kRows>
struct SweepTile {
  static constexpr int kPitch = kReduceLanes + 1;
  float4 pieces[kRows][4][kPitch];

  // Starts the copy of the sweep from element `begin`; rows past the last repeat it.
  __device__ void Copy(const float* x, int64_t x_stride, int row_count, int begin, int columns) {
    constexpr int kPieces = 4 * kReduceLanes;
    for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
      const int row = i / kPieces, piece = i % kPieces;
      const int k = begin + 4 * piece;
      if (k >= columns) continue;
      __pipeline_memcpy_async(&pieces[row][piece % 4][piece / 4],
                              x + min(row, row_count - 1) * x_stride + k, sizeof(float4));
    }
  }
};

// The lane's weights of kOut rows, one sweep; the rows lie in one block of scales.
template <int kOut>
struct SweepWeights {
  uint4 bits[kOut];
  float scale;
};

// Adds one sweep: sums[o][r] of the lane.
template <int kOut, int kRows>
__device__ void AddSweep(const Fp8Form& form, const SweepWeights<kOut>& weights,
                         const SweepTile<kRows>& tile, float (&sums)[kOut][kRows]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int quarter = 0; quarter < 4; ++quarter) {
    float w[kOut][4];
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
      form.Decode({weights.bits[o], weights.scale}, quarter, w[o]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 values = tile.pieces[r][quarter][lane];
#pragma unroll
      for (int o = 0; o < kOut; ++o) {
        sums[o][r] = fmaf(w[o][0], values.x, sums[o][r]);
        sums[o][r] = fmaf(w[o][1], values.y, sums[o][r]);
        sums[o][r] = fmaf(w[o][2], values.z, sums[o][r]);
        sums[o][r] = fmaf(w[o][3], values.w, sums[o][r]);
      }
    }
  }
}

// The copy of a segment's sweeps is waited for in parts, so that sums begin with the first.
constexpr int kCopyParts = 4;
constexpr int kSweepsPerPart = kSweepsPerSegment / kCopyParts;

// Until the calling thread's copies of parts 0 .. part have arrived.
__device__ inline void AwaitPart(int part) {
  switch (part) {
    case 0:
      return __pipeline_wait_prior(kCopyParts - 1);
    case 1:
      return __pipeline_wait_prior(kCopyParts - 2);
    case 2:
      return __pipeline_wait_prior(kCopyParts - 3);
    default:
      return __pipeline_wait_prior(0);
  }
}

// Grid: x = chunks of kRows rows, y = outputs, z = groups: chunks that share weights run together.
// The block's warps share the rows of x, a segment of them at a time. kOut divides the side of a
// block of scales. Dynamic shared memory: kSweepsPerSegment tiles, of one block a multiprocessor.
template <int kOut, int kRows>
__global__ void __launch_bounds__(kThreads, 1)
    GroupedOutputKernel(const __grid_constant__ GroupedOutputLaunch args) {
  constexpr int kSums = kSumCount<kOut, kRows>;
  TP2_DYNAMIC_SHARED(float4, tile_memory);
  SweepTile<kRows>* const tiles = reinterpret_cast<SweepTile<kRows>*>(tile_memory);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Outputs are whole blocks of kOut; warps past the last repeat it.
  const int first =
      min((static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32) * kOut,
          args.outputs - kOut);
  const int group = static_cast<int>(blockIdx.z);
  const int row = static_cast<int>(blockIdx.x) * kRows;
  const int row_count = min(kRows, args.rows - row);
  const Fp8Form form = {args.weights, args.scale, args.block, args.inputs};
  const int64_t x_stride = static_cast<int64_t>(args.groups) * args.inputs;
  const float* x = args.o + row * x_stride + static_cast<int64_t>(group) * args.inputs;
  const int first_row = group * args.outputs + first;
  const Fp8E4m3* row_weights = args.weights + static_cast<int64_t>(first_row) * args.inputs;
  const float* row_scales = args.scale + first_row / args.block * (args.inputs / args.block);
  const auto load = [&](int k, SweepWeights<kOut>& weights) {
    if (k >= args.inputs) return;
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
      weights.bits[o] = *reinterpret_cast<const uint4*>(row_weights + o * args.inputs + k);
    }
    weights.scale = row_scales[k / args.block];
  };
  float total = 0.0f;
  SweepWeights<kOut> next = {};
  load(lane * Fp8Form::kWidth, next);
  AwaitPredecessor();
  for (int segment = 0; segment < args.inputs; segment += kReduceSegment<Fp8Form::kWidth>) {
    __syncthreads();
    for (int i = 0; i < kSweepsPerSegment; ++i) {
      tiles[i].Copy(x, x_stride, row_count, segment + i * kSweepInputs, args.inputs);
      if (i % kSweepsPerPart == kSweepsPerPart - 1) __pipeline_commit();
    }
    float sums[kOut][kRows] = {};
    for (int i = 0; i < kSweepsPerSegment; ++i) {
      if (i % kSweepsPerPart == 0) {
        AwaitPart(i / kSweepsPerPart);
        __syncthreads();
      }
      const int k = segment + i * kSweepInputs + lane * Fp8Form::kWidth;
      const SweepWeights<kOut> weights = next;
      load(k + kSweepInputs, next);
      if (k < args.inputs) AddSweep(form, weights, tiles[i], sums);
    }
    float flat[kSums] = {};
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) flat[o * kRows + r] = sums[o][r];
    }
    const float sum = WarpSumMany(flat);
    total = segment == 0 ? sum : total + sum;
  }
  const int o = first + WarpSumIndex<kSums>() / kRows;
  const int r = WarpSumIndex<kSums>() % kRows;
  if (!WarpSumIsMain<kSums>() || o >= first + kOut || r >= row_count) return;
  args.z[(static_cast<int64_t>(row + r) * args.groups + group) * args.outputs + o] = total;
}

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

// A row of eights.count 16-bit eights at `row` into shared memory, two loads of a thread in flight.
__device__ void Stage(const uint16_t* row, bool is_fp16, const EightsRow& eights) {
  const uint4* raw = reinterpret_cast<const uint4*>(row);
  const int threads = static_cast<int>(blockDim.x);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < eights.count; i += 2 * threads) {
    const int next = min(i + threads, eights.count - 1);
    const uint4 first = raw[i], second = raw[next];
    eights.Set(i, Widened(first, is_fp16));
    if (i + threads < eights.count) eights.Set(next, Widened(second, is_fp16));
  }
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

// One segment of a canonical dot by one warp; every lane gets it. A batch of sweeps' loads of x is
// in flight at a time.
__device__ float SegmentDot(const EightsRow& weights, const float* x, int segment) {
  constexpr int kBatch = 4;
  const Eight* x_eights = reinterpret_cast<const Eight*>(x);
  const int first = segment * kSegmentEights + static_cast<int>(threadIdx.x) % 32;
  const int end = min(weights.count, (segment + 1) * kSegmentEights);
  float sum = 0.0f;
#pragma unroll 1
  for (int begin = first; begin < end; begin += kBatch * kReduceLanes) {
    Eight values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int at = begin + i * kReduceLanes;
      if (at < end) values[i] = x_eights[at];
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

// Affinities of `count` logits into shared memory; the next logit is on its way meanwhile.
__device__ void Affinities(const float* logits, int count, float* affinity, int* error) {
  const int threads = static_cast<int>(blockDim.x);
  const int first = static_cast<int>(threadIdx.x);
  float next = first < count ? __ldcg(logits + first) : 0.0f;
#pragma unroll 1
  for (int i = first; i < count; i += threads) {
    const float logit = next;
    if (i + threads < count) next = __ldcg(logits + i + threads);
    float value = GateAffinity(logit);
    if (value != value) {
      LatchError(error, KernelError::kRouterNan);
      value = 0.0f;
    }
    affinity[i] = value;
  }
}

constexpr int kRouterWarps = 3 * kRowChunk;  // one round for up to 6144 inputs
constexpr int kMaxRouterExperts = 4096;      // that a config may have
constexpr int kMaxRouterBytes = sizeof(float) * (kRowChunk + 1) * kMaxRouterExperts;

// Grid: x = experts, y = chunks of rows; a warp takes a segment of a row at a time. The last block
// of a chunk chooses its rows' experts. Dynamic shared memory: the expert's weights, in their place
// later the chunk's affinities, then the bias. Two blocks share a multiprocessor.
__global__ void __launch_bounds__(32 * kRouterWarps, 2)
    RouterKernel(const __grid_constant__ RouterLaunch args) {
  TP2_DYNAMIC_SHARED(float4, router_memory);
  __shared__ float sums[kMaxSegments * kRowChunk];
  __shared__ bool is_last;
  const int expert = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y) * kRowChunk;
  const int row_count = min(kRowChunk, args.rows - row);
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const EightsRow weights = {router_memory, args.dim / kEight};
  Stage(args.gate.bits + static_cast<int64_t>(expert) * args.dim, args.gate.is_fp16, weights);
  float* const affinity = reinterpret_cast<float*>(router_memory);
  float* const bias = affinity + max(args.dim, kRowChunk * args.experts);
#pragma unroll 1
  for (int e = static_cast<int>(threadIdx.x); e < args.experts; e += 32 * warps) {
    bias[e] = args.bias[e];
  }
  AwaitPredecessor();
  __syncthreads();
  const int segments = (weights.count + kSegmentEights - 1) / kSegmentEights;
#pragma unroll 1
  for (int i = warp; i < segments * kRowChunk; i += warps) {
    const int r = i % kRowChunk;
    if (r >= row_count) continue;
    const float sum =
        SegmentDot(weights, args.x + static_cast<int64_t>(row + r) * args.dim, i / kRowChunk);
    if (lane == 0) sums[i] = sum;
  }
  __syncthreads();
  float* const logits = args.logits + static_cast<int64_t>(row) * args.experts;
  if (warp == 0) {
    if (lane < row_count) {
      float total = sums[lane];
#pragma unroll 1
      for (int s = 1; s < segments; ++s) total = total + sums[s * kRowChunk + lane];
      logits[lane * args.experts + expert] = total;
    }
    __syncwarp();
    if (lane == 0) {
      is_last = CountArrival(args.arrivals + blockIdx.y) + 1 == gridDim.x;
      if (is_last) args.arrivals[blockIdx.y] = 0;
    }
  }
  __syncthreads();
  if (!is_last) return;
  Affinities(logits, row_count * args.experts, affinity, args.error);
  __syncthreads();
  if (warp < row_count) ChooseRow(args, row + warp, bias, affinity + warp * args.experts);
}

// One block per (request, row), one warp per segment. Dynamic shared memory: the collapsed row and
// the fed token's embedding, side by side.
__global__ void ConfidenceKernel(const __grid_constant__ ConfidenceLaunch args) {
  TP2_DYNAMIC_SHARED(float, joined);
  __shared__ float sums[32];
  constexpr int kSegment = kReduceSegment<Half16Form::kWidth>;
  const int columns = args.weight.columns;
  const int segment = static_cast<int>(threadIdx.x) / 32;
  const int begin = segment * kSegment, end = min(columns, begin + kSegment);
  const Half16Form form = {args.weight.bits, args.weight.is_fp16, columns};
  SegmentWeights<Half16Form> weights;
  weights.Load(form, 0, begin, end);
  AwaitPredecessor();
  const int request = static_cast<int>(blockIdx.y);
  const int i = static_cast<int>(blockIdx.x);
  const float* xc = args.xc + (static_cast<int64_t>(request) * args.n_out + i) * args.dim;
  const int64_t token = args.fed[request * args.fed_stride + i];
  for (int k = threadIdx.x; k < args.embed.columns; k += blockDim.x) {
    joined[args.dim + k] = Half16At(args.embed, token * args.embed.columns + k);
  }
#pragma unroll 16
  for (int k = 4 * threadIdx.x; k < args.dim; k += 4 * blockDim.x) {
    *reinterpret_cast<float4*>(joined + k) = *reinterpret_cast<const float4*>(xc + k);
  }
  __syncthreads();
  const float sum = weights.Dots<1>(form, begin, end, joined, 0, 1);
  if (threadIdx.x % 32 == 0) sums[segment] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = sums[0];
  for (int s = 1; s < static_cast<int>(blockDim.x) / 32; ++s) total = total + sums[s];
  args.logits[request * args.block_rows + i] = total;
}

// Threads of a block with one warp per segment of a 16-bit row; rows have at most 32 segments.
int ThreadsForSegments(int columns) {
  constexpr int kSegment = kReduceSegment<Half16Form::kWidth>;
  return 32 * ((columns + kSegment - 1) / kSegment);
}

constexpr size_t kTileBytes = kSweepsPerSegment * sizeof(SweepTile<kRowChunk>);

unsigned ChunksOf(int rows) { return static_cast<unsigned>((rows + kRowChunk - 1) / kRowChunk); }

}  // namespace

void LaunchGroupedOutput(const GroupedOutputLaunch& args, const Queue& queue) {
  const auto grid_of = [&args](int outputs_per_warp) {
    const int per_block = kWarps * outputs_per_warp;
    return dim3(ChunksOf(args.rows),
                static_cast<unsigned>((args.outputs + per_block - 1) / per_block),
                static_cast<unsigned>(args.groups));
  };
  // Four outputs share what a warp reads of x; too few blocks for the card are worse.
  const dim3 grid = grid_of(4);
  if (static_cast<int>(grid.x * grid.y * grid.z) * 4 >= args.multiprocessors * 3) {
    return Launch(queue, GroupedOutputKernel<4, kRowChunk>, grid, kThreads, kTileBytes, args);
  }
  Launch(queue, GroupedOutputKernel<2, kRowChunk>, grid_of(2), kThreads, kTileBytes, args);
}

void LaunchRouter(const RouterLaunch& args, const Queue& queue) {
  const dim3 grid(static_cast<unsigned>(args.experts), ChunksOf(args.rows));
  const int warps = std::min(kRouterWarps, kRowChunk * SegmentsOf(args.dim));
  const int shared = std::max(args.dim, kRowChunk * args.experts) + args.experts;
  Launch(queue, RouterKernel, grid, 32 * warps, sizeof(float) * shared, args);
}

void LaunchConfidence(const ConfidenceLaunch& args, const Queue& queue) {
  const dim3 grid(static_cast<unsigned>(args.n_out), static_cast<unsigned>(args.requests));
  Launch(queue, ConfidenceKernel, grid, ThreadsForSegments(args.weight.columns),
         sizeof(float) * args.weight.columns, args);
}

cudaError_t PreloadMatVec() {
#define TP2_MATVEC
#include "libcore/ops/cuda/kernel_list.inc"
  for (const auto kernel : {GroupedOutputKernel<2, kRowChunk>, GroupedOutputKernel<4, kRowChunk>}) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kTileBytes);
    if (error != cudaSuccess) return error;
  }
  return cudaFuncSetAttribute(RouterKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kMaxRouterBytes);
}

}  // namespace tp2::cuda
