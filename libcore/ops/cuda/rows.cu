// Row-wise operations: widening, norms, embedding, KV and query tails, stream arithmetic, the sum
// of halves.
#include "libcore/math/fake_quant.h"
#include "libcore/math/transcendental.h"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/preload.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kNormThreads = 512;

unsigned BlocksFor(int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

__device__ int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

__global__ void WidenKernel(const Bf16* in, int64_t count, float* out) {
  if (const int64_t i = GlobalThread(); i < count) out[i] = ToFloat(in[i]);
}

// One segment of the canonical sum of squares (V = 4) by one warp; columns are a multiple of 128,
// so a sweep is whole or absent.
__device__ float SegmentSquares(const float* x, int begin, int end) {
  float sum = 0.0f;
#pragma unroll 8
  for (int k = begin + static_cast<int>(threadIdx.x) % 32 * 4; k < end; k += kReduceLanes * 4) {
    const float4 v = *reinterpret_cast<const float4*>(x + k);
    sum = fmaf(v.x, v.x, sum);
    sum = fmaf(v.y, v.y, sum);
    sum = fmaf(v.z, v.z, sum);
    sum = fmaf(v.w, v.w, sum);
  }
  return WarpButterfly(sum);
}

// One block per row. y may be x: every element is read and written by one thread after the sum.
__global__ void __launch_bounds__(kNormThreads) RmsNormKernel(const RmsNormLaunch args) {
  __shared__ float segments[kMaxSegments];
  const float* x = args.x + static_cast<int64_t>(blockIdx.x) * args.columns;
  float* y = args.y + static_cast<int64_t>(blockIdx.x) * args.columns;
  const int count = (args.columns + kReduceSegment<4> - 1) / kReduceSegment<4>;
  for (int s = static_cast<int>(threadIdx.x) / 32; s < count; s += kNormThreads / 32) {
    const int begin = s * kReduceSegment<4>;
    const float sum = SegmentSquares(x, begin, min(args.columns, begin + kReduceSegment<4>));
    if (threadIdx.x % 32 == 0) segments[s] = sum;
  }
  __syncthreads();
  float total = segments[0];
  for (int s = 1; s < count; ++s) total = total + segments[s];
  const float inverse = Rsqrt(total / static_cast<float>(args.columns) + args.eps);
  for (int i = 4 * static_cast<int>(threadIdx.x); i < args.columns; i += 4 * kNormThreads) {
    const float4 v = *reinterpret_cast<const float4*>(x + i);
    *reinterpret_cast<float4*>(y + i) = {Half16At(args.weight, i) * (v.x * inverse),
                                         Half16At(args.weight, i + 1) * (v.y * inverse),
                                         Half16At(args.weight, i + 2) * (v.z * inverse),
                                         Half16At(args.weight, i + 3) * (v.w * inverse)};
  }
}

// One block per row; dynamic shared memory: the row.
__global__ void __launch_bounds__(kThreads) KvFinishKernel(const KvFinishLaunch args) {
  extern __shared__ float k_row[];
  const int row = static_cast<int>(blockIdx.x);
  if (args.out_rows[row] < 0) return;
  const int pairs = args.rope_dims / 2;
  const int plain = args.dims - args.rope_dims;
  const float* x = args.x + static_cast<int64_t>(row) * args.dims;
  for (int i = threadIdx.x; i < args.dims; i += kThreads) k_row[i] = x[i];
  __syncthreads();
  const CosSin* table = args.rope + args.positions[row] * pairs;
  for (int i = threadIdx.x; i < pairs; i += kThreads) {
    RopePair(table[i], k_row[plain + 2 * i], k_row[plain + 2 * i + 1]);
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  for (int begin = warp * args.quant_group; begin < args.quantized_dims;
       begin += kThreads / 32 * args.quant_group) {
    const int end = min(args.quantized_dims, begin + args.quant_group);
    float amax = 0.0f;
    for (int i = begin + lane; i < end; i += 32) amax = fmaxf(amax, fabsf(k_row[i]));
    const float scale = FakeQuantScale(WarpMax(amax));
    for (int i = begin + lane; i < end; i += 32) k_row[i] = FakeQuantValue(k_row[i], scale);
  }
  __syncthreads();
  Bf16* out = args.out + static_cast<int64_t>(args.out_rows[row]) * args.dims;
  for (int i = threadIdx.x; i < args.dims; i += kThreads) out[i] = ToBf16(k_row[i]);
}

// One warp per (row, head).
__global__ void __launch_bounds__(kThreads) QueryFinishKernel(const QueryFinishLaunch args) {
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

// One block per row.
__global__ void __launch_bounds__(kThreads) EmbedKernel(const EmbedLaunch args) {
  const int64_t row = blockIdx.x;
  const int dim = args.embed.columns;
  const int64_t from = static_cast<int64_t>(args.ids[row]) * dim;
  for (int i = threadIdx.x; i < dim; i += kThreads) {
    const Bf16 value = ToBf16(Half16At(args.embed, from + i));
    for (int s = 0; s < kStreams; ++s) args.streams[(row * kStreams + s) * dim + i] = value;
  }
  if (threadIdx.x < kStreams)
    args.pre[row * kStreams + threadIdx.x] = threadIdx.x == 0 ? 1.0f : 0.0f;
}

__global__ void __launch_bounds__(kThreads) CollapseKernel(const CollapseLaunch args) {
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

__global__ void __launch_bounds__(kThreads)
    AddHalvesKernel(const float* half0, const float* half1, int64_t count, Bf16* y0, Bf16* y1) {
  const int64_t i = GlobalThread();
  if (i >= count) return;
  const Bf16 y = ToBf16(half0[i] + half1[i]);
  y0[i] = y;
  if (y1 != nullptr) y1[i] = y;
}

}  // namespace

void LaunchWiden(const Bf16* in, int64_t count, float* out, cudaStream_t stream) {
  WidenKernel<<<BlocksFor(count), kThreads, 0, stream>>>(in, count, out);
}

void LaunchRmsNorm(const RmsNormLaunch& args, cudaStream_t stream) {
  RmsNormKernel<<<args.rows, kNormThreads, 0, stream>>>(args);
}

void LaunchKvFinish(const KvFinishLaunch& args, cudaStream_t stream) {
  KvFinishKernel<<<args.rows, kThreads, sizeof(float) * args.dims, stream>>>(args);
}

void LaunchQueryFinish(const QueryFinishLaunch& args, cudaStream_t stream) {
  QueryFinishKernel<<<BlocksFor(int64_t{32} * args.rows * args.heads), kThreads, 0, stream>>>(args);
}

void LaunchEmbed(const EmbedLaunch& args, cudaStream_t stream) {
  EmbedKernel<<<args.rows, kThreads, 0, stream>>>(args);
}

void LaunchCollapse(const CollapseLaunch& args, cudaStream_t stream) {
  CollapseKernel<<<BlocksFor(int64_t{args.rows} * args.dim), kThreads, 0, stream>>>(args);
}

void LaunchUpdate(Bf16* streams, const Bf16* y, const MixCoefficients* mix, int rows, int dim,
                  cudaStream_t stream) {
  UpdateKernel<<<BlocksFor(int64_t{rows} * dim), kThreads, 0, stream>>>(streams, y, mix, rows, dim);
}

void LaunchAddHalves(const float* half0, const float* half1, int64_t count, Bf16* y0, Bf16* y1,
                     cudaStream_t stream) {
  AddHalvesKernel<<<BlocksFor(count), kThreads, 0, stream>>>(half0, half1, count, y0, y1);
}

cudaError_t PreloadRows() {
#define TP2_ROWS
#include "libcore/ops/cuda/kernel_list.inc"
  return cudaSuccess;
}

}  // namespace tp2::cuda
