// The grouped output projection wo_a: canonical dot products of e4m3 rows with one scale per block
// x block square, V = 16.
#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <iterator>

#include "libcore/math/fp8.h"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/matvec.cuh"
#include "libcore/ops/cuda/preload.cuh"

namespace tp2::cuda {
namespace {

constexpr int kE4m3Width = 16;  // V

// What DecodeE4m3 multiplies by. Scales are powers of two far from the ends of fp32's range (the
// loader has refused others), so every product is exact, in any order.
__device__ float E4m3Factor(float scale) {
#if __CUDA_ARCH__ >= 890
  return scale;
#else
  return scale * 256.0f;
#endif
}

// Four weights. The loader has refused NaN codes.
__device__ void DecodeE4m3(uint32_t four, float factor, float (&w)[4]) {
#if __CUDA_ARCH__ >= 890
  WidenHalves(HalvesOfE4m3(four), w[0], w[1]);
  WidenHalves(HalvesOfE4m3(four >> 16), w[2], w[3]);
#else
  // Two codes in the upper bytes of halves. Their fields moved to fp16's places are the value times
  // 2^-8, exactly, subnormals too.
  const auto small_halves = [](uint32_t codes) {
    return (codes & 0x80008000u) | ((codes & 0x7F007F00u) >> 1);
  };
  WidenHalves(small_halves(__byte_perm(four, 0, 0x1404)), w[0], w[1]);
  WidenHalves(small_halves(__byte_perm(four, 0, 0x3424)), w[2], w[3]);
#endif
#pragma unroll
  for (int i = 0; i < 4; ++i) w[i] = w[i] * factor;
}

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;

constexpr int kSweepInputs = kReduceLanes * kE4m3Width;

// One sweep of the canonical order in shared memory: kRows rows of x as the lanes read them, piece
// `quarter` of lane `lane` being x[16 lane + 4 quarter ..]. The pitch spreads the pieces over
// banks.
template <int kRows>
struct SweepTile {
  static constexpr int kPitch = kReduceLanes + 1;
  float4 pieces[kRows][4][kPitch];
};

// A thread's part in the copies of x: one piece of every kRowsAtOnce-th row, a sweep at a time.
// Rows past the last keep what they hold: their sums are nobody's.
template <int kRows>
struct TileCopier {
  static constexpr int kPieces = kSweepInputs / 4, kRowsAtOnce = kThreads / kPieces;
  static_assert(kThreads % kPieces == 0);

  const float* from;
  float4* to;
  int row_stride;
  int rows_left;

  __device__ TileCopier(const float* x, int x_stride, int row_count, SweepTile<kRows>& tile) {
    const int row = static_cast<int>(threadIdx.x) / kPieces;
    const int piece = static_cast<int>(threadIdx.x) % kPieces;
    from = x + row * x_stride + 4 * piece;
    to = &tile.pieces[row][piece % 4][piece / 4];
    row_stride = kRowsAtOnce * x_stride;
    rows_left = row_count - row;
  }
  // The sweep from element `begin` into tile number `tile`.
  __device__ void Copy(int begin, int columns, int tile) const {
    if (begin + static_cast<int>(threadIdx.x) % kPieces * 4 >= columns) return;
    constexpr int kTile = sizeof(SweepTile<kRows>) / sizeof(float4);
    constexpr int kRow = 4 * SweepTile<kRows>::kPitch;
#pragma unroll
    for (int r = 0; r < kRows; r += kRowsAtOnce) {
      if (r >= rows_left) return;
      __pipeline_memcpy_async(to + tile * kTile + r * kRow,
                              from + (r / kRowsAtOnce * row_stride + begin), sizeof(float4));
    }
  }
};

// The block's memory: x of the sweep that is added and of the next one; of the next one also the
// weights, which a lane copies for itself.
template <int kOut, int kRows>
struct GroupedOutputMemory {
  SweepTile<kRows> tiles[2];
  uint4 weights[kOut][kThreads];
};

// Adds one sweep: sums[o][r] of the lane; destroys `weights`. In two halves, because the compiler
// spills registers when it may mix four quarters.
template <int kOut, int kRows>
__device__ void AddSweep(uint4 (&weights)[kOut], float factor, const SweepTile<kRows>& tile,
                         float (&sums)[kOut][kRows]) {
  const float4* x = &tile.pieces[0][0][threadIdx.x % 32];
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int quarter = 0; quarter < 2; ++quarter) {
      float w[kOut][4];
#pragma unroll
      for (int o = 0; o < kOut; ++o) {
        DecodeE4m3(quarter == 0 ? weights[o].x : weights[o].y, factor, w[o]);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float4 values = x[(4 * r + quarter) * SweepTile<kRows>::kPitch];
#pragma unroll
        for (int o = 0; o < kOut; ++o) {
          sums[o][r] = fmaf(w[o][0], values.x, sums[o][r]);
          sums[o][r] = fmaf(w[o][1], values.y, sums[o][r]);
          sums[o][r] = fmaf(w[o][2], values.z, sums[o][r]);
          sums[o][r] = fmaf(w[o][3], values.w, sums[o][r]);
        }
      }
    }
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
      weights[o].x = weights[o].z;
      weights[o].y = weights[o].w;
    }
    x += 2 * SweepTile<kRows>::kPitch;
  }
}

// The sums of one segment across the warp: kFirst rows of x at once and the rest, as many as
// WarpSumMany takes.
template <int kOut, int kRows>
struct WarpSums {
  static constexpr int kFirst = kRows * kOut <= 32 ? kRows : 32 / kOut;
  static constexpr int kRest = kRows - kFirst;
  float first = 0.0f, rest = 0.0f;

  // Clears `sums`.
  __device__ void Add(float (&sums)[kOut][kRows], bool is_first_segment) {
    AddRows<kFirst>(sums, 0, is_first_segment, first);
    if constexpr (kRest > 0) AddRows<kRest>(sums, kFirst, is_first_segment, rest);
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[o][r] = 0.0f;
    }
  }
  // store(o, r, sum) for every sum that this lane holds.
  template <class Store>
  __device__ void ForEach(Store store) const {
    StoreRows<kFirst>(0, first, store);
    if constexpr (kRest > 0) StoreRows<kRest>(kFirst, rest, store);
  }

 private:
  template <int kCount>
  __device__ static void AddRows(const float (&sums)[kOut][kRows], int row, bool is_first_segment,
                                 float& total) {
    float flat[kSumCount<kOut, kCount>] = {};
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
#pragma unroll
      for (int r = 0; r < kCount; ++r) flat[o * kCount + r] = sums[o][row + r];
    }
    const float sum = WarpSumMany(flat);
    total = is_first_segment ? sum : total + sum;
  }
  template <int kCount, class Store>
  __device__ static void StoreRows(int row, float total, Store store) {
    constexpr int kSums = kSumCount<kOut, kCount>;
    const int index = WarpSumIndex<kSums>();
    if (WarpSumIsMain<kSums>() && index < kOut * kCount) {
      store(index / kCount, row + index % kCount, total);
    }
  }
};

// Grid: x = chunks of kRows rows, y = outputs, z = groups: chunks that share weights run together.
// The block's warps share the rows of x. kOut and a lane's 16 inputs divide the side of a block of
// scales, which divides a sweep. One block a multiprocessor.
template <int kOut, int kRows>
__global__ void __launch_bounds__(kThreads, 1)
    GroupedOutputKernel(const __grid_constant__ GroupedOutputLaunch args) {
  TP2_DYNAMIC_SHARED(float4, dynamic_memory);
  auto& memory = *reinterpret_cast<GroupedOutputMemory<kOut, kRows>*>(dynamic_memory);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Outputs are whole blocks of kOut; warps past the last repeat it.
  const int first =
      min((static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32) * kOut,
          args.outputs - kOut);
  const int group = static_cast<int>(blockIdx.z);
  const int row = static_cast<int>(blockIdx.x) * kRows;
  const int row_count = min(kRows, args.rows - row);
  const int x_stride = args.groups * args.inputs;
  const float* x = args.o + static_cast<int64_t>(row) * x_stride + group * args.inputs;
  const int first_row = group * args.outputs + first;
  const int lane_k = lane * kE4m3Width;
  const Fp8E4m3* weights_from =
      args.weights + static_cast<int64_t>(first_row) * args.inputs + lane_k;
  const float* scale_from =
      args.scale + first_row / args.block * (args.inputs / args.block) + lane_k / args.block;
  const int scale_step = kSweepInputs / args.block;
  float next_factor = 0.0f;
  const auto copy_weights = [&](int begin) {
    if (begin + lane_k >= args.inputs) return;
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
      __pipeline_memcpy_async(&memory.weights[o][threadIdx.x], weights_from + o * args.inputs,
                              sizeof(uint4));
    }
    next_factor = E4m3Factor(*scale_from);
    weights_from += kSweepInputs;
    scale_from += scale_step;
  };
  const TileCopier<kRows> x_copier(x, x_stride, row_count, memory.tiles[0]);
  copy_weights(0);
  AwaitPredecessor();
  x_copier.Copy(0, args.inputs, 0);
  WarpSums<kOut, kRows> totals;
  float sums[kOut][kRows] = {};
#pragma unroll 1
  for (int sweep = 0; sweep * kSweepInputs < args.inputs; ++sweep) {
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    const int behind = (sweep + 1) * kSweepInputs;
    uint4 weights[kOut];
#pragma unroll
    for (int o = 0; o < kOut; ++o) weights[o] = memory.weights[o][threadIdx.x];
    const float factor = next_factor;
    copy_weights(behind);
    x_copier.Copy(behind, args.inputs, (sweep + 1) % 2);
    if (behind - kSweepInputs + lane_k < args.inputs) {
      AddSweep(weights, factor, memory.tiles[sweep % 2], sums);
    }
    if ((sweep + 1) % kSweepsPerSegment == 0 || behind >= args.inputs) {
      totals.Add(sums, sweep < kSweepsPerSegment);
    }
  }
  totals.ForEach([&](int o, int r, float sum) {
    if (r >= row_count) return;
    args.z[(static_cast<int64_t>(row + r) * args.groups + group) * args.outputs + first + o] = sum;
  });
}

unsigned ChunksOf(int rows, int chunk) { return static_cast<unsigned>((rows + chunk - 1) / chunk); }

// A way to share the work of wo_a among blocks. cost: of a block and sweep, in slots of a quarter
// of a multiprocessor for its four warps' instructions, 16 kOut kRows to add, 44 kOut to decode, 4
// kRows to read x and about 105 others; or for shared memory to deliver x, if that takes longer.
struct GroupedOutputForm {
  void (*kernel)(GroupedOutputLaunch);
  int outputs, rows, cost;
  size_t shared_bytes;

  dim3 Grid(const GroupedOutputLaunch& args) const {
    return dim3(ChunksOf(args.rows, rows), ChunksOf(args.outputs, kWarps * outputs),
                static_cast<unsigned>(args.groups));
  }
  // Of the whole launch, in waves of one block a multiprocessor.
  int64_t Cost(const GroupedOutputLaunch& args) const {
    const dim3 grid = Grid(args);
    const int64_t blocks = int64_t{grid.x} * grid.y * grid.z;
    return (blocks + args.multiprocessors - 1) / args.multiprocessors * cost;
  }
};

template <int kOut, int kRows>
constexpr GroupedOutputForm MakeForm() {
  constexpr int kInstructions = 16 * kOut * kRows + 44 * kOut + 4 * kRows + 105;
  constexpr int kSharedReads = 64 * kRows;
  return {GroupedOutputKernel<kOut, kRows>, kOut, kRows, std::max(kInstructions, kSharedReads),
          sizeof(GroupedOutputMemory<kOut, kRows>)};
}

constexpr GroupedOutputForm kGroupedOutputForms[] = {MakeForm<2, 5>(), MakeForm<4, 5>(),
                                                     MakeForm<4, 8>(), MakeForm<4, 10>()};

}  // namespace

void LaunchGroupedOutput(const GroupedOutputLaunch& args, const Queue& queue) {
  const GroupedOutputForm& form = *std::min_element(
      std::begin(kGroupedOutputForms), std::end(kGroupedOutputForms),
      [&args](const auto& a, const auto& b) { return a.Cost(args) < b.Cost(args); });
  Launch(queue, form.kernel, form.Grid(args), kThreads, form.shared_bytes, args);
}

cudaError_t PreloadGroupedOutput() {
#define TP2_GROUPED_OUTPUT
#include "libcore/ops/cuda/kernel_list.inc"
  for (const GroupedOutputForm& form : kGroupedOutputForms) {
    const cudaError_t error =
        cudaFuncSetAttribute(form.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(form.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace tp2::cuda
