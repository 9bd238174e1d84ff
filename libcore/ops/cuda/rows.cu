// Row-wise operations: widening, norms, embedding, KV and query tails, stream arithmetic, the sum
// of halves.
#include "libcore/math/transcendental.h"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/norm.cuh"
#include "libcore/ops/cuda/preload.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kNormThreads = 512;
constexpr int kMaxEnterDim = 16384;
constexpr int kEnterThreads = 640;  // two sweeps of the mission's 5120 columns

unsigned BlocksFor(int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

__device__ int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

__global__ void WidenKernel(const Bf16* in, int64_t count, float* out) {
  AwaitPredecessor();
  if (const int64_t i = GlobalThread(); i < count) out[i] = ToFloat(in[i]);
}

// One block per row. y may be x: every element is read and written by one thread after the sum.
__global__ void __launch_bounds__(kNormThreads) RmsNormKernel(const RmsNormLaunch args) {
  __shared__ float segments[kMaxSegments];
  PrefetchWeights(args.weight);
  AwaitPredecessor();
  const float* x = args.x + static_cast<int64_t>(blockIdx.x) * args.columns;
  float* y = args.y + static_cast<int64_t>(blockIdx.x) * args.columns;
  const float inverse = BlockInverseRms(x, args.columns, args.eps, segments);
  for (int i = 4 * static_cast<int>(threadIdx.x); i < args.columns; i += 4 * kNormThreads) {
    const float4 v = *reinterpret_cast<const float4*>(x + i);
    *reinterpret_cast<float4*>(y + i) = Normed(args.weight, i, v, inverse);
  }
}

// One warp per (row, head).
__global__ void __launch_bounds__(kThreads) QueryFinishKernel(const QueryFinishLaunch args) {
  AwaitPredecessor();
  const int64_t index = GlobalThread() / 32;
  if (index >= static_cast<int64_t>(args.rows) * args.heads) return;
  const int lane = threadIdx.x % 32;
  float* q = args.q + index * args.dims;
  if (args.is_normed) {
    const float sum =
        WarpReduce<4>(args.dims, [q](float acc, int k) { return fmaf(q[k], q[k], acc); });
    const float inverse = Rsqrt(sum / static_cast<float>(args.dims) + args.eps);
    __syncwarp();
    for (int i = lane; i < args.dims; i += 32) q[i] = q[i] * inverse;
    __syncwarp();
  }
  const int pairs = args.rope_dims / 2;
  const int plain = args.dims - args.rope_dims;
  const CosSin* table = args.rope + args.positions[index / args.heads] * pairs;
  for (int i = lane; i < pairs; i += 32) {
    RopePair(table[i], q[plain + 2 * i], q[plain + 2 * i + 1]);
  }
}

// The finite fp16 values of a word (the loader has refused others) as bf16.
__device__ uint32_t Bf16sOfHalves(uint32_t halves) {
  float low, high;
  WidenHalves(halves, low, high);
  return ToBf16(low).bits | static_cast<uint32_t>(ToBf16(high).bits) << 16;
}

constexpr int kEmbedThreads = 128;
constexpr int kEmbedColumns = 8;  // of a thread: one load of 16 bytes

// Grid: x = columns, y = rows.
__global__ void __launch_bounds__(kEmbedThreads) EmbedKernel(const EmbedLaunch args) {
  AwaitPredecessor();
  const int dim = args.embed.columns;
  const int thread = static_cast<int>(blockIdx.x) * kEmbedThreads + static_cast<int>(threadIdx.x);
  const int column = thread * kEmbedColumns;
  if (column >= dim) return;
  const int64_t row = blockIdx.y;
  uint4 values = *reinterpret_cast<const uint4*>(
      args.embed.bits + static_cast<int64_t>(args.ids[row]) * dim + column);
  if (args.embed.is_fp16) {
    values = {Bf16sOfHalves(values.x), Bf16sOfHalves(values.y), Bf16sOfHalves(values.z),
              Bf16sOfHalves(values.w)};
  }
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
    *reinterpret_cast<uint4*>(args.streams + (row * kStreams + s) * dim + column) = values;
  }
  if (thread < kStreams) args.pre[row * kStreams + thread] = thread == 0 ? 1.0f : 0.0f;
}

__global__ void __launch_bounds__(kThreads) CollapseKernel(const CollapseLaunch args) {
  AwaitPredecessor();
  const int64_t index = GlobalThread();
  if (index >= static_cast<int64_t>(args.rows) * args.dim) return;
  const int row = static_cast<int>(index / args.dim);
  const int64_t i = index % args.dim;
  const int64_t source = row / args.take * args.of + row % args.take;
  const Bf16* streams = args.streams + source * kStreams * args.dim + i;
  float h[kStreams];
#pragma unroll
  for (int s = 0; s < kStreams; ++s) h[s] = ToFloat(streams[static_cast<int64_t>(s) * args.dim]);
  args.x[index] = CollapseElement(args.weights + source * args.weight_stride, h);
}

__global__ void __launch_bounds__(kThreads)
    UpdateKernel(Bf16* streams, const Bf16* y, const MixCoefficients* mix, int rows, int dim) {
  AwaitPredecessor();
  const int64_t index = GlobalThread();
  if (index >= static_cast<int64_t>(rows) * dim) return;
  const int64_t row = index / dim;
  Bf16* h_row = streams + row * kStreams * dim + index % dim;
  float h[kStreams];
#pragma unroll
  for (int s = 0; s < kStreams; ++s) h[s] = ToFloat(h_row[static_cast<int64_t>(s) * dim]);
  const float value = ToFloat(y[index]);
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
    h_row[static_cast<int64_t>(s) * dim] = ToBf16(UpdateElement(mix[row], s, value, h));
  }
}

// Four neighbouring bf16 values.
__device__ void LoadFour(const Bf16* from, float (&v)[4]) {
  const float4 four = FourBf16(*reinterpret_cast<const uint2*>(from));
  v[0] = four.x;
  v[1] = four.y;
  v[2] = four.z;
  v[3] = four.w;
}

__device__ void StoreFour(Bf16* to, const float (&v)[4]) {
  const auto pair = [](float low, float high) {
    return ToBf16(low).bits | static_cast<uint32_t>(ToBf16(high).bits) << 16;
  };
  *reinterpret_cast<uint2*>(to) = {pair(v[0], v[1]), pair(v[2], v[3])};
}

// h = streams after the update of four neighbouring columns, as they are stored.
__device__ void UpdateFour(const MixCoefficients& mix, const float (&value)[4], Bf16* streams,
                           int dim, float (&h)[kStreams][4]) {
  float updated[kStreams][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float before[kStreams] = {h[0][i], h[1][i], h[2][i], h[3][i]};
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      updated[s][i] = RoundToBf16(UpdateElement(mix, s, value[i], before));
    }
  }
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
    StoreFour(streams + static_cast<int64_t>(s) * dim, updated[s]);
#pragma unroll
    for (int i = 0; i < 4; ++i) h[s][i] = updated[s][i];
  }
}

// Four elements of y, which are those of the halves' sum where the halves are given.
__device__ void LoadSum(const EnterLaunch& args, int64_t at, float (&value)[4]) {
  if (args.half0 == nullptr) return LoadFour(args.y + at, value);
  const float4 a = *reinterpret_cast<const float4*>(args.half0 + at);
  const float4 b = *reinterpret_cast<const float4*>(args.half1 + at);
  value[0] = RoundToBf16(a.x + b.x);
  value[1] = RoundToBf16(a.y + b.y);
  value[2] = RoundToBf16(a.z + b.z);
  value[3] = RoundToBf16(a.w + b.w);
  StoreFour(args.y + at, value);
}

// One block per row of the streams. Dynamic shared memory: the collapsed row.
__global__ void __launch_bounds__(kEnterThreads, 1)
    EnterKernel(const __grid_constant__ EnterLaunch args) {
  TP2_DYNAMIC_SHARED(float, collapsed_row);
  __shared__ float segments[kMaxSegments];
  PrefetchWeights(args.norm);
  AwaitPredecessor();
  const int row = static_cast<int>(blockIdx.x);
  const bool is_picked = args.x != nullptr && row % args.of < args.take;
  Bf16* streams = args.streams + static_cast<int64_t>(row) * kStreams * args.dim;
  MixCoefficients mix = {};
  if (args.y != nullptr) mix = args.update[row];
  float pre[kStreams] = {};
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
    if (is_picked) pre[s] = args.pre[row * args.pre_stride + s];
  }
  const int64_t out = static_cast<int64_t>(row / args.of * args.take + row % args.of) * args.dim;
#pragma unroll 2
  for (int k = 4 * static_cast<int>(threadIdx.x); k < args.dim; k += 4 * kEnterThreads) {
    float h[kStreams][4];
#pragma unroll
    for (int s = 0; s < kStreams; ++s)
      LoadFour(streams + static_cast<int64_t>(s) * args.dim + k, h[s]);
    if (args.y != nullptr) {
      float value[4];
      LoadSum(args, static_cast<int64_t>(row) * args.dim + k, value);
      UpdateFour(mix, value, streams + k, args.dim, h);
    }
    if (!is_picked) continue;
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float column[kStreams] = {h[0][i], h[1][i], h[2][i], h[3][i]};
      x[i] = CollapseElement(pre, column);
    }
    const float4 four = {x[0], x[1], x[2], x[3]};
    *reinterpret_cast<float4*>(collapsed_row + k) = four;
    if (args.collapsed != nullptr) *reinterpret_cast<float4*>(args.collapsed + out + k) = four;
  }
  if (!is_picked) return;
  __syncthreads();
  const float inverse = BlockInverseRms(collapsed_row, args.dim, args.eps, segments);
  for (int k = 4 * static_cast<int>(threadIdx.x); k < args.dim; k += 4 * kEnterThreads) {
    const float4 v = *reinterpret_cast<const float4*>(collapsed_row + k);
    *reinterpret_cast<float4*>(args.x + out + k) = Normed(args.norm, k, v, inverse);
  }
}

__global__ void __launch_bounds__(kThreads)
    AddHalvesKernel(const float* half0, const float* half1, int64_t count, Bf16* y0, Bf16* y1) {
  AwaitPredecessor();
  const int64_t i = GlobalThread();
  if (i >= count) return;
  const Bf16 y = ToBf16(half0[i] + half1[i]);
  y0[i] = y;
  if (y1 != nullptr) y1[i] = y;
}

}  // namespace

void LaunchWiden(const Bf16* in, int64_t count, float* out, const Queue& queue) {
  Launch(queue, WidenKernel, BlocksFor(count), kThreads, 0, in, count, out);
}

void LaunchRmsNorm(const RmsNormLaunch& args, const Queue& queue) {
  Launch(queue, RmsNormKernel, args.rows, kNormThreads, 0, args);
}

void LaunchQueryFinish(const QueryFinishLaunch& args, const Queue& queue) {
  Launch(queue, QueryFinishKernel, BlocksFor(int64_t{32} * args.rows * args.heads), kThreads, 0,
         args);
}

void LaunchEmbed(const EmbedLaunch& args, const Queue& queue) {
  constexpr int kPerBlock = kEmbedThreads * kEmbedColumns;
  const dim3 grid(static_cast<unsigned>((args.embed.columns + kPerBlock - 1) / kPerBlock),
                  static_cast<unsigned>(args.rows));
  Launch(queue, EmbedKernel, grid, kEmbedThreads, 0, args);
}

void LaunchCollapse(const CollapseLaunch& args, const Queue& queue) {
  Launch(queue, CollapseKernel, BlocksFor(int64_t{args.rows} * args.dim), kThreads, 0, args);
}

void LaunchEnter(const EnterLaunch& args, const Queue& queue) {
  Launch(queue, EnterKernel, args.rows, kEnterThreads, sizeof(float) * args.dim, args);
}

void LaunchUpdate(Bf16* streams, const Bf16* y, const MixCoefficients* mix, int rows, int dim,
                  const Queue& queue) {
  Launch(queue, UpdateKernel, BlocksFor(int64_t{rows} * dim), kThreads, 0, streams, y, mix, rows,
         dim);
}

void LaunchAddHalves(const float* half0, const float* half1, int64_t count, Bf16* y0, Bf16* y1,
                     const Queue& queue) {
  Launch(queue, AddHalvesKernel, BlocksFor(count), kThreads, 0, half0, half1, count, y0, y1);
}

cudaError_t PreloadRows() {
#define TP2_ROWS
#include "libcore/ops/cuda/kernel_list.inc"
  return cudaFuncSetAttribute(EnterKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              sizeof(float) * kMaxEnterDim);
}

}  // namespace tp2::cuda
