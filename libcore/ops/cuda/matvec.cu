// The grouped output projection, routing and confidence: canonical dot products.
#include "libcore/ops/cuda/matvec.cuh"

#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/preload.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kOutputsPerWarp = 4;
constexpr int kRowChunk = 5;

// Grid: x = outputs, y = chunks of rows, z = groups.
__global__ void __launch_bounds__(kThreads)
    GroupedOutputKernel(const __grid_constant__ GroupedOutputLaunch args) {
  const int first = (static_cast<int>(blockIdx.x) * kWarps + threadIdx.x / 32) * kOutputsPerWarp;
  if (first >= args.outputs) return;
  const int group = static_cast<int>(blockIdx.z);
  const int row = static_cast<int>(blockIdx.y) * kRowChunk;
  const int row_count = min(kRowChunk, args.rows - row);
  int rows[kOutputsPerWarp];
#pragma unroll
  for (int o = 0; o < kOutputsPerWarp; ++o) {
    rows[o] = group * args.outputs + min(first + o, args.outputs - 1);
  }
  const Fp8Form form = {args.weights, args.scale, args.block, args.inputs};
  const int64_t x_stride = static_cast<int64_t>(args.groups) * args.inputs;
  const float* x = args.o + row * x_stride + static_cast<int64_t>(group) * args.inputs;
  float totals[kOutputsPerWarp][kRowChunk];
  WarpMatVec(form, args.inputs, rows, x, x_stride, row_count, totals);
  if (threadIdx.x % 32 != 0) return;
#pragma unroll
  for (int r = 0; r < kRowChunk; ++r) {
    if (r >= row_count) break;
    float* z = args.z + (static_cast<int64_t>(row + r) * args.groups + group) * args.outputs;
#pragma unroll
    for (int o = 0; o < kOutputsPerWarp; ++o) {
      if (first + o < args.outputs) z[first + o] = totals[o][r];
    }
  }
}

// Grid: x = experts, y = chunks of rows.
__global__ void __launch_bounds__(kThreads)
    RouterLogitsKernel(const __grid_constant__ RouterLaunch args) {
  const int expert = static_cast<int>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (expert >= args.experts) return;
  const int row = static_cast<int>(blockIdx.y) * kRowChunk;
  const int row_count = min(kRowChunk, args.rows - row);
  const Half16Form form = {args.gate.bits, args.gate.is_fp16, args.dim};
  const int rows[1] = {expert};
  float totals[1][kRowChunk];
  WarpMatVec(form, args.dim, rows, args.x + static_cast<int64_t>(row) * args.dim, args.dim,
             row_count, totals);
  if (threadIdx.x % 32 != 0) return;
#pragma unroll
  for (int r = 0; r < kRowChunk; ++r) {
    if (r < row_count)
      args.logits[static_cast<int64_t>(row + r) * args.experts + expert] = totals[0][r];
  }
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
      atomicCAS(args.error, 0, static_cast<int>(KernelError::kRouterNan));
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

// One warp per (request, row). Dynamic shared memory: the collapsed row and the fed token's
// embedding, side by side.
__global__ void __launch_bounds__(32)
    ConfidenceKernel(const __grid_constant__ ConfidenceLaunch args) {
  extern __shared__ __align__(16) float joined[];
  const int request = static_cast<int>(blockIdx.y);
  const int i = static_cast<int>(blockIdx.x);
  const float* xc = args.xc + (static_cast<int64_t>(request) * args.n_out + i) * args.dim;
  const int64_t token = args.fed[request * args.fed_stride + i];
  for (int k = threadIdx.x; k < args.dim; k += 32) joined[k] = xc[k];
  for (int k = threadIdx.x; k < args.embed.columns; k += 32) {
    joined[args.dim + k] = Half16At(args.embed, token * args.embed.columns + k);
  }
  __syncwarp();
  const int columns = args.weight.columns;
  const Half16Form form = {args.weight.bits, args.weight.is_fp16, columns};
  const int rows[1] = {0};
  float totals[1][1];
  WarpMatVec(form, columns, rows, joined, 0, 1, totals);
  if (threadIdx.x == 0) args.logits[request * args.block_rows + i] = totals[0][0];
}

unsigned ChunksOf(int rows) { return static_cast<unsigned>((rows + kRowChunk - 1) / kRowChunk); }

}  // namespace

void LaunchGroupedOutput(const GroupedOutputLaunch& args, cudaStream_t stream) {
  constexpr int kBlockOutputs = kWarps * kOutputsPerWarp;
  const dim3 grid(static_cast<unsigned>((args.outputs + kBlockOutputs - 1) / kBlockOutputs),
                  ChunksOf(args.rows), static_cast<unsigned>(args.groups));
  GroupedOutputKernel<<<grid, kThreads, 0, stream>>>(args);
}

void LaunchRouter(const RouterLaunch& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((args.experts + kWarps - 1) / kWarps), ChunksOf(args.rows));
  RouterLogitsKernel<<<grid, kThreads, 0, stream>>>(args);
  ChooseKernel<<<args.rows, 32, 2 * sizeof(float) * args.experts, stream>>>(args);
}

void LaunchConfidence(const ConfidenceLaunch& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.n_out), static_cast<unsigned>(args.requests));
  ConfidenceKernel<<<grid, 32, sizeof(float) * args.weight.columns, stream>>>(args);
}

cudaError_t PreloadMatVec() {
#define TP2_MATVEC
#include "libcore/ops/cuda/kernel_list.inc"
  return cudaSuccess;
}

}  // namespace tp2::cuda
