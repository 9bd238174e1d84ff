// Routed and shared experts around the products: grouping of rows by expert where the router has
// not done it, the sum of their outputs in ascending expert order.
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/preload.cuh"
#include "libcore/ops/cuda/route.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;

static_assert(kThreads >= kMaxRouteEntries);

// One block.
__global__ void __launch_bounds__(kThreads) RouteKernel(const __grid_constant__ RouteLaunch args) {
  AwaitPredecessor();
  __shared__ RouteMemory memory;
  GroupRows(args, &memory);
}

// partials[half][row] = the row's items in ascending expert order, then the shared expert's. Grid:
// x = columns, y = rows, z = halves.
__global__ void __launch_bounds__(kThreads)
    CombineKernel(const __grid_constant__ RouteLaunch args, float* partials, int64_t half_stride) {
  AwaitPredecessor();
  const int column = static_cast<int>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= args.dim) return;
  const int row = static_cast<int>(blockIdx.y);
  const float* parts =
      args.parts + static_cast<int64_t>(blockIdx.z) * args.item_capacity * args.dim + column;
  const int32_t* items = args.row_items + row * args.top_k;
  float sum = parts[static_cast<int64_t>(items[0]) * args.dim];
  for (int i = 1; i < args.top_k; ++i) {
    sum = sum + parts[static_cast<int64_t>(items[i]) * args.dim];
  }
  sum = sum + parts[(static_cast<int64_t>(args.rows) * args.top_k + row) * args.dim];
  partials[blockIdx.z * half_stride + static_cast<int64_t>(row) * args.dim + column] = sum;
}

}  // namespace

void LaunchRoute(const RouteLaunch& args, const Queue& queue) {
  Launch(queue, RouteKernel, 1, kThreads, 0, args);
}

void LaunchCombine(const RouteLaunch& args, float* partials, int64_t half_stride,
                   const Queue& queue) {
  const dim3 grid(static_cast<unsigned>((args.dim + kThreads - 1) / kThreads),
                  static_cast<unsigned>(args.rows), static_cast<unsigned>(args.halves));
  Launch(queue, CombineKernel, grid, kThreads, 0, args, partials, half_stride);
}

cudaError_t PreloadExperts() {
#define TP2_EXPERTS
#include "libcore/ops/cuda/kernel_list.inc"
  return cudaSuccess;
}

}  // namespace tp2::cuda
