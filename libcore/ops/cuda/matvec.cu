// The grouped output projection, routing and confidence: canonical dot products.
#include "libcore/ops/cuda/matvec.cuh"

#include <cuda_pipeline_primitives.h>

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

struct Candidate {
  float score;
  int expert;
};

__device__ Candidate WarpBest(Candidate best) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const Candidate other = {__shfl_xor_sync(kAllLanes, best.score, distance),
                             __shfl_xor_sync(kAllLanes, best.expert, distance)};
    if (other.expert >= 0 &&
        (best.expert < 0 || GateBefore(other.score, other.expert, best.score, best.expert))) {
      best = other;
    }
  }
  return best;
}

// One row by one warp; affinity: shared [2 * experts] for affinities, then scores. ChooseExperts of
// math/gate.h: GateBefore is a total order, so rounds of "best of what is left" choose what
// insertion chooses.
__device__ void ChooseRow(const RouterLaunch& args, int row, float* affinity) {
  float* scores = affinity + args.experts;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int e = lane; e < args.experts; e += 32) {
    float value = GateAffinity(__ldcg(args.logits + static_cast<int64_t>(row) * args.experts + e));
    if (value != value) {
      LatchError(args.error, KernelError::kRouterNan);
      value = 0.0f;
    }
    affinity[e] = value;
    scores[e] = value + args.bias[e];
  }
  __syncwarp();
  GateChoice choice = {};
  unsigned chosen = 0;  // of this lane's experts lane, lane + 32, ...: at most kMaxExpertsPerToken
  int chosen_ids[kMaxExpertsPerToken];
  for (int i = 0; i < args.top_k; ++i) {
    Candidate best = {0.0f, -1};
    for (int e = lane; e < args.experts; e += 32) {
      bool is_taken = false;
      for (unsigned c = 0; c < chosen; ++c) is_taken = is_taken || chosen_ids[c] == e;
      if (!is_taken && (best.expert < 0 || GateBefore(scores[e], e, best.score, best.expert))) {
        best = {scores[e], e};
      }
    }
    best = WarpBest(best);
    choice.experts[i] = best.expert;
    chosen_ids[chosen++] = best.expert;
  }
  if (lane != 0) return;
  float sum = 0.0f;
  for (int i = 0; i < args.top_k; ++i) sum = sum + affinity[choice.experts[i]];
  const float divisor = sum + 1e-20f;
  for (int i = 0; i < args.top_k; ++i) {
    choice.weights[i] = (affinity[choice.experts[i]] / divisor) * args.route_scale;
  }
  args.choices[row] = choice;
}

constexpr int kRouterSums = kSumCount<1, kRowChunk>;

// Grid: x = experts, y = chunks of rows; one warp per segment. The last block of a chunk chooses
// its rows' experts. Dynamic shared memory: the segments' sums [segment][kRouterSums], then 2 *
// experts values per warp.
__global__ void RouterKernel(const __grid_constant__ RouterLaunch args) {
  TP2_DYNAMIC_SHARED(float, router_sums);
  __shared__ bool is_last;
  constexpr int kSegment = kReduceSegment<Half16Form::kWidth>;
  const int expert = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y) * kRowChunk;
  const int row_count = min(kRowChunk, args.rows - row);
  const int segment = static_cast<int>(threadIdx.x) / 32;
  const Half16Form form = {args.gate.bits, args.gate.is_fp16, args.dim};
  const int begin = segment * kSegment, end = min(args.dim, begin + kSegment);
  SegmentWeights<Half16Form> weights;
  weights.Load(form, expert, begin, end);
  AwaitPredecessor();
  const float sum = weights.Dots<kRowChunk>(
      form, begin, end, args.x + static_cast<int64_t>(row) * args.dim, args.dim, row_count);
  if (WarpSumIsMain<kRouterSums>()) {
    router_sums[segment * kRouterSums + WarpSumIndex<kRouterSums>()] = sum;
  }
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int r = static_cast<int>(threadIdx.x);
  if (r < row_count) {
    float total = router_sums[r];
    for (int s = 1; s < warps; ++s) total = total + router_sums[s * kRouterSums + r];
    args.logits[static_cast<int64_t>(row + r) * args.experts + expert] = total;
    __threadfence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(args.arrivals + blockIdx.y, 1u) + 1 == gridDim.x;
    if (is_last) args.arrivals[blockIdx.y] = 0;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  for (int i = segment; i < row_count; i += warps) {
    ChooseRow(args, row + i, router_sums + warps * kRouterSums + 2 * segment * args.experts);
  }
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
  const int threads = ThreadsForSegments(args.dim);
  const size_t shared_bytes = sizeof(float) * threads / 32 * (kRouterSums + 2 * args.experts);
  Launch(queue, RouterKernel, grid, threads, shared_bytes, args);
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
  return cudaSuccess;
}

}  // namespace tp2::cuda
