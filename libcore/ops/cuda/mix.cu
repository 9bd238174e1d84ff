// Hyper-connection coefficients where no other kernel takes them along, and those in front of the
// head.
#include "libcore/ops/cuda/mix.cuh"

#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/preload.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;
static_assert(kThreads / 32 >= kMixTileRows);

__global__ void __launch_bounds__(kThreads) MixKernel(const __grid_constant__ MixLaunch args) {
  MixBlock(args, static_cast<int>(blockIdx.x));
}

__global__ void __launch_bounds__(kThreads)
    HeadMixKernel(const __grid_constant__ StreamDotsLaunch args, const float* scale,
                  const float* base, float hc_eps, float* pre) {
  const MixTile tile(args, static_cast<int>(blockIdx.x));
  if (!DotStreams(args, tile)) return;
  const int row = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= tile.rows) return;
  const float dot = SumOfSegments(args, tile, row, min(lane, kStreams));
  const float inverse = InverseRmsOf(__shfl_sync(kAllLanes, dot, kStreams), args);
  if (lane >= kStreams) return;
  pre[(tile.row + row) * kStreams + lane] =
      Sigmoid(fmaf(dot * inverse, scale[0], base[lane])) + hc_eps;
}

}  // namespace

void LaunchMix(const MixLaunch& args, const Queue& queue) {
  Launch(queue, MixKernel, MixBlocksOf(args.dots), kThreads, 0, args);
}

void LaunchHeadMix(const StreamDotsLaunch& dots, const float* scale, const float* base,
                   float hc_eps, float* pre, const Queue& queue) {
  Launch(queue, HeadMixKernel, MixBlocksOf(dots), kThreads, 0, dots, scale, base, hc_eps, pre);
}

cudaError_t PreloadMix() {
#define TP2_MIX
#include "libcore/ops/cuda/kernel_list.inc"
  return cudaSuccess;
}

}  // namespace tp2::cuda
