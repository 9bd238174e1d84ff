// The grouped output projection, routing and confidence: canonical dot products.
#include "libcore/ops/cuda/matvec.cuh"

#include <cuda_pipeline_primitives.h>

#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/preload.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRowChunk = 5;

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
    __pipeline_commit();
  }
};

// Grid: x = outputs, y = chunks of kRows rows, z = groups. The block's warps share the rows of x.
// kOut divides the side of a block of scales.
template <int kOut, int kRows>
__global__ void __launch_bounds__(kThreads, 2)
    GroupedOutputKernel(const __grid_constant__ GroupedOutputLaunch args) {
  constexpr int kSweep = kReduceLanes * Fp8Form::kWidth;
  constexpr int kSums = kSumCount<kOut, kRows>;
  __shared__ SweepTile<kRows> tiles[2];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first =
      (static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32) * kOut;
  const int group = static_cast<int>(blockIdx.z);
  const int row = static_cast<int>(blockIdx.y) * kRows;
  const int row_count = min(kRows, args.rows - row);
  int rows[kOut];
#pragma unroll
  for (int o = 0; o < kOut; ++o) {
    rows[o] = group * args.outputs + min(first + o, args.outputs - 1);
  }
  const Fp8Form form = {args.weights, args.scale, args.block, args.inputs};
  const int64_t x_stride = static_cast<int64_t>(args.groups) * args.inputs;
  const float* x = args.o + row * x_stride + static_cast<int64_t>(group) * args.inputs;
  const auto load = [&](int k, Fp8Form::Raw(&raw)[kOut]) {
    if (k >= args.inputs) return;
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
      raw[o] = form.Load(rows[o], k);
      // kOut rows from a multiple of kOut lie in one block of scales: one register for all.
      raw[o].scale = raw[0].scale;
    }
  };
  float sums[kOut][kRows] = {};
  float total = 0.0f;
  Fp8Form::Raw next[kOut] = {};
  load(lane * Fp8Form::kWidth, next);
  tiles[0].Copy(x, x_stride, row_count, 0, args.inputs);
  for (int begin = 0; begin < args.inputs; begin += kSweep) {
    const int sweep = begin / kSweep;
    if (begin + kSweep < args.inputs) {
      tiles[(sweep + 1) % 2].Copy(x, x_stride, row_count, begin + kSweep, args.inputs);
    } else {
      __pipeline_commit();
    }
    const int k = begin + lane * Fp8Form::kWidth;
    Fp8Form::Raw raw[kOut];
#pragma unroll
    for (int o = 0; o < kOut; ++o) raw[o] = next[o];
    load(k + kSweep, next);
    __pipeline_wait_prior(1);
    __syncthreads();
    if (k < args.inputs) {
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        float w[kOut][4];
#pragma unroll
        for (int o = 0; o < kOut; ++o) form.Decode(raw[o], quarter, w[o]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float4 values = tiles[sweep % 2].pieces[r][quarter][lane];
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
    __syncthreads();
    const bool ends_segment = (sweep + 1) % kSweepsPerSegment == 0 || begin + kSweep >= args.inputs;
    if (!ends_segment) continue;
    float flat[kSums] = {};
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        flat[o * kRows + r] = sums[o][r];
        sums[o][r] = 0.0f;
      }
    }
    const float segment = WarpSumMany(flat);
    total = sweep < kSweepsPerSegment ? segment : total + segment;
  }
  const int o = first + WarpSumIndex<kSums>() / kRows;
  const int r = WarpSumIndex<kSums>() % kRows;
  if (!WarpSumIsMain<kSums>() || o >= min(first + kOut, args.outputs) || r >= row_count) return;
  args.z[(static_cast<int64_t>(row + r) * args.groups + group) * args.outputs + o] = total;
}

constexpr int kRouterSums = kSumCount<1, kRowChunk>;

// Grid: x = experts, y = chunks of rows; one warp per segment. Dynamic shared memory: the segments'
// sums [segment][kRouterSums].
__global__ void RouterLogitsKernel(const __grid_constant__ RouterLaunch args) {
  extern __shared__ float router_sums[];
  constexpr int kSegment = kReduceSegment<Half16Form::kWidth>;
  const int expert = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y) * kRowChunk;
  const int row_count = min(kRowChunk, args.rows - row);
  const int segment = static_cast<int>(threadIdx.x) / 32;
  const Half16Form form = {args.gate.bits, args.gate.is_fp16, args.dim};
  const int rows[1] = {expert};
  const float sum = WarpSegmentDots<1, kRowChunk>(
      form, segment * kSegment, min(args.dim, (segment + 1) * kSegment), rows,
      args.x + static_cast<int64_t>(row) * args.dim, args.dim, row_count);
  if (WarpSumIsMain<kRouterSums>()) {
    router_sums[segment * kRouterSums + WarpSumIndex<kRouterSums>()] = sum;
  }
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x);
  if (r >= row_count) return;
  float total = router_sums[r];
  for (int s = 1; s < static_cast<int>(blockDim.x) / 32; ++s) {
    total = total + router_sums[s * kRouterSums + r];
  }
  args.logits[static_cast<int64_t>(row + r) * args.experts + expert] = total;
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

// One warp per row; dynamic shared memory: affinities, then scores. ChooseExperts of math/gate.h:
// GateBefore is a total order, so rounds of "best of what is left" choose what insertion chooses.
__global__ void __launch_bounds__(32) ChooseKernel(const __grid_constant__ RouterLaunch args) {
  extern __shared__ float affinity[];
  float* scores = affinity + args.experts;
  const int row = static_cast<int>(blockIdx.x);
  const int lane = threadIdx.x;
  for (int e = lane; e < args.experts; e += 32) {
    float value = GateAffinity(args.logits[static_cast<int64_t>(row) * args.experts + e]);
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

// One block per (request, row), one warp per segment. Dynamic shared memory: the collapsed row and
// the fed token's embedding, side by side.
__global__ void ConfidenceKernel(const __grid_constant__ ConfidenceLaunch args) {
  extern __shared__ __align__(16) float joined[];
  __shared__ float sums[32];
  constexpr int kSegment = kReduceSegment<Half16Form::kWidth>;
  const int request = static_cast<int>(blockIdx.y);
  const int i = static_cast<int>(blockIdx.x);
  const float* xc = args.xc + (static_cast<int64_t>(request) * args.n_out + i) * args.dim;
  const int64_t token = args.fed[request * args.fed_stride + i];
  for (int k = threadIdx.x; k < args.dim; k += blockDim.x) joined[k] = xc[k];
  for (int k = threadIdx.x; k < args.embed.columns; k += blockDim.x) {
    joined[args.dim + k] = Half16At(args.embed, token * args.embed.columns + k);
  }
  __syncthreads();
  const int columns = args.weight.columns;
  const int segment = static_cast<int>(threadIdx.x) / 32;
  const Half16Form form = {args.weight.bits, args.weight.is_fp16, columns};
  const int rows[1] = {0};
  const float sum = WarpSegmentDots<1, 1>(
      form, segment * kSegment, min(columns, (segment + 1) * kSegment), rows, joined, 0, 1);
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

template <int kOut, int kRows>
void LaunchGroupedOutputOf(const GroupedOutputLaunch& args, cudaStream_t stream) {
  constexpr int kBlockOutputs = kWarps * kOut;
  const dim3 grid(static_cast<unsigned>((args.outputs + kBlockOutputs - 1) / kBlockOutputs),
                  static_cast<unsigned>((args.rows + kRows - 1) / kRows),
                  static_cast<unsigned>(args.groups));
  GroupedOutputKernel<kOut, kRows><<<grid, kThreads, 0, stream>>>(args);
}

unsigned ChunksOf(int rows) { return static_cast<unsigned>((rows + kRowChunk - 1) / kRowChunk); }

}  // namespace

void LaunchGroupedOutput(const GroupedOutputLaunch& args, cudaStream_t stream) {
  if (args.rows <= 10) return LaunchGroupedOutputOf<4, 5>(args, stream);
  LaunchGroupedOutputOf<4, 7>(args, stream);
}

void LaunchRouter(const RouterLaunch& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.experts), ChunksOf(args.rows));
  const int threads = ThreadsForSegments(args.dim);
  RouterLogitsKernel<<<grid, threads, sizeof(float) * threads / 32 * kRouterSums, stream>>>(args);
  ChooseKernel<<<args.rows, 32, 2 * sizeof(float) * args.experts, stream>>>(args);
}

void LaunchConfidence(const ConfidenceLaunch& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.n_out), static_cast<unsigned>(args.requests));
  ConfidenceKernel<<<grid, ThreadsForSegments(args.weight.columns),
                     sizeof(float) * args.weight.columns, stream>>>(args);
}

cudaError_t PreloadMatVec() {
#define TP2_MATVEC
#include "libcore/ops/cuda/kernel_list.inc"
  return cudaSuccess;
}

}  // namespace tp2::cuda
