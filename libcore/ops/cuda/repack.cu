// Brings a trellis from the checkpoint's order into the order of trellis.cuh, at load time.
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/preload.cuh"
#include "libcore/ops/cuda/trellis.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;

// Byte `index` of a tile's bit string, first bit on top: 32-bit words hold it from their high end.
__device__ uint32_t TileByte(const uint8_t* tile, int index) {
  return tile[index / 4 * 4 + 3 - index % 4];
}

// One thread per 32-bit word of the result. A lane's bits of a tile are K whole bytes.
__global__ void __launch_bounds__(kThreads)
    RepackKernel(const __grid_constant__ DeviceMatrix matrix, uint32_t* out) {
  AwaitPredecessor();
  const int bits = matrix.bits;
  const int64_t word = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t unit = word / (128 * bits);
  const int in_unit = static_cast<int>(word % (128 * bits));  // [K][32 lanes][4 words]
  const int lane = in_unit / 4 % 32;
  const int lane_word = in_unit / 128 * 4 + in_unit % 4;
  const int units_k = matrix.k / kUnitInputs;
  if (unit >= static_cast<int64_t>(matrix.n / kUnitOutputs) * units_k) return;
  const int64_t first_column = unit / units_k * (kUnitOutputs / 16);  // of tiles
  const int64_t first_row = unit % units_k * (kUnitInputs / 16);
  uint32_t packed = 0;
  for (int byte = 4 * lane_word; byte < 4 * lane_word + 4; ++byte) {
    const int tile = byte / bits;
    const uint16_t* units = matrix.trellis + (first_row + tile / 4) * matrix.tile_row_pitch +
                            (first_column + tile % 4) * 16 * bits;
    packed =
        packed << 8 | TileByte(reinterpret_cast<const uint8_t*>(units), lane * bits + byte % bits);
  }
  out[word] = packed;
}

}  // namespace

void LaunchRepack(const DeviceMatrix& matrix, uint16_t* out, const Queue& queue) {
  const int64_t words = static_cast<int64_t>(matrix.k) * matrix.n / 32 * matrix.bits;
  const unsigned blocks = static_cast<unsigned>((words + kThreads - 1) / kThreads);
  Launch(queue, RepackKernel, blocks, kThreads, 0, matrix, reinterpret_cast<uint32_t*>(out));
}

cudaError_t PreloadRepack() {
#define TP2_REPACK
#include "libcore/ops/cuda/kernel_list.inc"
  return cudaSuccess;
}

}  // namespace tp2::cuda
