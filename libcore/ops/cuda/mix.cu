// Hyper-connection coefficients: the dot products of a row's four streams, then one warp per row.
#include "libcore/math/transcendental.h"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/preload.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {
namespace {

constexpr int kSegment = kReduceSegment<4>;
// Sums of a row: the outputs, then the sum of squares.
constexpr int kMaxSums = kMixOutputs + 1;

int SegmentsOf(int dim) { return (kStreams * dim + kSegment - 1) / kSegment; }

constexpr int kSweepInputs = kReduceLanes * 4;

// A lane's part of a segment: dim is a multiple of 128, so a sweep is whole or absent.
template <class T>
struct LaneSweeps {
  T of[kSweepsPerSegment];

  // first: of the lane.
  template <class Element>
  __device__ void Load(const Element* first, int count) {
#pragma unroll
    for (int i = 0; i < kSweepsPerSegment; ++i) {
      if (i < count) of[i] = *reinterpret_cast<const T*>(first + i * kSweepInputs);
    }
  }
};

// One segment of the canonical sum (V = 4) of w . x, or of x . x, by one warp.
template <bool kIsSquare>
__device__ float SegmentDot(const LaneSweeps<float4>& w, const LaneSweeps<uint2>& x, int count) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kSweepsPerSegment; ++i) {
    if (i >= count) break;
    const float4 v = FourBf16(x.of[i]);
    const float4 by = kIsSquare ? v : w.of[i];
    sum = fmaf(by.x, v.x, sum);
    sum = fmaf(by.y, v.y, sum);
    sum = fmaf(by.z, v.z, sum);
    sum = fmaf(by.w, v.w, sum);
  }
  return WarpButterfly(sum);
}

// Few enough tiles that rows share weights. A block is as small as what a multiprocessor has left
// beside one of the attention's: registers for three warps in each of its four parts.
constexpr int kMostTiles = 4;
constexpr int kParts = 3;
constexpr int kMaxPartSums = (kMaxSums + kParts - 1) / kParts;

// Grid: x = segments, y = tiles of rows, z = parts of the sums; one warp per sum, which holds its
// weights for all rows of the tile. partials[row][sum][segment].
__global__ void __launch_bounds__(32 * kMaxPartSums)
    StreamDotsKernel(const StreamDotsLaunch args, int tile_rows) {
  const int64_t columns = kStreams * args.dim;
  const int begin = static_cast<int>(blockIdx.x) * kSegment;
  const int count = min(kSegment, kStreams * args.dim - begin) / kSweepInputs;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int sum = warp * kParts + static_cast<int>(blockIdx.z);
  if (sum > args.outputs) return AwaitPredecessor();
  const bool is_square = sum == args.outputs;
  LaneSweeps<float4> w = {};
  if (!is_square) w.Load(args.fn + sum * columns + begin + 4 * lane, count);
  AwaitPredecessor();
  int row = static_cast<int>(blockIdx.y) * tile_rows;
  const int end = min(args.rows, row + tile_rows);
#pragma unroll 1
  for (; row < end; ++row) {
    LaneSweeps<uint2> x = {};
    x.Load(args.streams + row * columns + begin + 4 * lane, count);
    const float total = is_square ? SegmentDot<true>(w, x, count) : SegmentDot<false>(w, x, count);
    if (lane == 0) {
      args.partials[(static_cast<int64_t>(row) * kMaxSums + sum) * gridDim.x + blockIdx.x] = total;
    }
  }
}

// Lane `sum` adds its segments in ascending order.
__device__ float SumOfSegments(const float* partials, int row, int sum, int segments) {
  const float* from = partials + (static_cast<int64_t>(row) * kMaxSums + sum) * segments;
  float total = from[0];
#pragma unroll 10
  for (int s = 1; s < segments; ++s) total = total + from[s];
  return total;
}

__device__ float InverseRmsOf(float sum, const StreamDotsLaunch& args) {
  return Rsqrt(sum / static_cast<float>(kStreams * args.dim) + args.norm_eps);
}

// Lane 4 i + j of 16 holds c[i][j].
// BITS: SinkhornStep of math/mixing.h.
__device__ float WarpSinkhornStep(float c, int lane, bool over_rows, float eps) {
  float sum = 0.0f;
#pragma unroll
  for (int b = 0; b < kStreams; ++b) {
    const int from = over_rows ? b * kStreams + lane % kStreams : lane / kStreams * kStreams + b;
    sum = sum + __shfl_sync(kAllLanes, c, from);
  }
  return c / (sum + eps);
}

// One warp per row: ComputeMix of math/mixing.h with a lane per coefficient, the same operations in
// the same order.
__global__ void __launch_bounds__(32)
    MixKernel(const StreamDotsLaunch args, int segments, const float* scale, const float* base,
              float hc_eps, int sinkhorn_iterations, MixCoefficients* mix) {
  AwaitPredecessor();
  const int row = static_cast<int>(blockIdx.x);
  const int lane = threadIdx.x;
  const float dot = SumOfSegments(args.partials, row, min(lane, kMixOutputs), segments);
  const float inverse = InverseRmsOf(__shfl_sync(kAllLanes, dot, kMixOutputs), args);
  MixCoefficients& out = mix[row];
  const int group = lane < kStreams ? 0 : (lane < 2 * kStreams ? 1 : 2);
  const float value = lane < kMixOutputs ? fmaf(dot * inverse, scale[group], base[lane]) : 0.0f;
  if (group == 0) out.pre[lane] = Sigmoid(value) + hc_eps;
  if (group == 1) out.post[lane - kStreams] = 2.0f * Sigmoid(value);
  // The combination moves to lanes 0 .. 15.
  const float entry = __shfl_sync(kAllLanes, value, (lane + 2 * kStreams) % 32);
  const int first = lane / kStreams * kStreams;
  float largest = __shfl_sync(kAllLanes, entry, first);
  for (int j = 1; j < kStreams; ++j) {
    const float other = __shfl_sync(kAllLanes, entry, first + j);
    if (other > largest) largest = other;
  }
  const float power = Exp(entry - largest);
  float sum = 0.0f;
  for (int j = 0; j < kStreams; ++j) sum = sum + __shfl_sync(kAllLanes, power, first + j);
  float c = power / sum + hc_eps;
  c = WarpSinkhornStep(c, lane, true, hc_eps);
#pragma unroll 1
  for (int i = 1; i < sinkhorn_iterations; ++i) {
    c = WarpSinkhornStep(c, lane, false, hc_eps);
    c = WarpSinkhornStep(c, lane, true, hc_eps);
  }
  if (lane < kStreams * kStreams) out.comb[lane / kStreams][lane % kStreams] = c;
}

__global__ void __launch_bounds__(32)
    HeadMixKernel(const StreamDotsLaunch args, int segments, const float* scale, const float* base,
                  float hc_eps, float* pre) {
  AwaitPredecessor();
  const int row = static_cast<int>(blockIdx.x);
  const int lane = threadIdx.x;
  const float dot = SumOfSegments(args.partials, row, min(lane, kStreams), segments);
  const float inverse = InverseRmsOf(__shfl_sync(kAllLanes, dot, kStreams), args);
  if (lane >= kStreams) return;
  pre[row * kStreams + lane] = Sigmoid(fmaf(dot * inverse, scale[0], base[lane])) + hc_eps;
}

void LaunchDots(const StreamDotsLaunch& args, const Queue& queue) {
  const int tile_rows = (args.rows + kMostTiles - 1) / kMostTiles;
  const dim3 grid(static_cast<unsigned>(SegmentsOf(args.dim)),
                  static_cast<unsigned>((args.rows + tile_rows - 1) / tile_rows), kParts);
  const int warps = (args.outputs + 1 + kParts - 1) / kParts;
  Launch(queue, StreamDotsKernel, grid, 32 * warps, 0, args, tile_rows);
}

}  // namespace

void LaunchMix(const StreamDotsLaunch& dots, const float* scale, const float* base, float hc_eps,
               int sinkhorn_iterations, MixCoefficients* mix, const Queue& queue) {
  LaunchDots(dots, queue);
  Launch(queue, MixKernel, dots.rows, 32, 0, dots, SegmentsOf(dots.dim), scale, base, hc_eps,
         sinkhorn_iterations, mix);
}

void LaunchHeadMix(const StreamDotsLaunch& dots, const float* scale, const float* base,
                   float hc_eps, float* pre, const Queue& queue) {
  LaunchDots(dots, queue);
  Launch(queue, HeadMixKernel, dots.rows, 32, 0, dots, SegmentsOf(dots.dim), scale, base, hc_eps,
         pre);
}

cudaError_t PreloadMix() {
#define TP2_MIX
#include "libcore/ops/cuda/kernel_list.inc"
  return cudaSuccess;
}

}  // namespace tp2::cuda
