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

// A block's threads: the canonical order's 32 lanes for each of kSets sets of kOut outputs. A warp
// has eight lanes of four sets: it reads whole cache lines of weights, and four threads share a
// read of x. With all lanes of one set in a warp, shared memory would need as long to deliver x as
// the multiplications of four outputs take.
constexpr int kThreads = 256;
constexpr int kSets = kThreads / kReduceLanes;

__device__ int LaneOfThread() { return static_cast<int>(threadIdx.x) / 4 % kReduceLanes; }
__device__ int SetOfThread() {
  return static_cast<int>(threadIdx.x) % 4 + static_cast<int>(threadIdx.x) / (4 * kReduceLanes) * 4;
}

constexpr int kSweepInputs = kReduceLanes * kE4m3Width;

// One sweep of the canonical order in shared memory: kRows rows of x as float4 pieces in order, but
// a lane's four pieces permuted, so that eight lanes find theirs in different banks.
template <int kRows>
struct SweepTile {
  float4 pieces[kRows][kSweepInputs / 4];
};

// Where piece `quarter` of the lane lies.
__device__ int PlaceOfPiece(int lane, int quarter) { return lane * 4 + (quarter ^ lane / 2 % 4); }

// A thread's part in the copies of x, a sweep at a time: every 32nd piece of its warp's rows.
// Rows past the last keep what they hold: their sums are nobody's.
template <int kRows>
struct TileCopier {
  static constexpr int kWarps = kThreads / 32;

  const float* from;  // of the next sweep
  int64_t row_stride;
  int rows_left, columns_left;
  int place;

  __device__ TileCopier(const float* x, int x_stride, int rows, int columns) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int piece = static_cast<int>(threadIdx.x) % 32;
    from = x + warp * x_stride + 4 * piece;
    row_stride = int64_t{kWarps} * x_stride;
    rows_left = rows - warp;
    columns_left = columns;
    place = warp * (kSweepInputs / 4) + PlaceOfPiece(piece / 4, piece % 4);
  }
  // The next sweep, if there is one.
  __device__ void CopyNext(SweepTile<kRows>& tile) {
    float4* to = &tile.pieces[0][0] + place;
    const float* row = from;
    // Unrolled and without questions inside a row: a copy holds its address registers until it has
    // left, and a warp that changes them waits.
    if (columns_left >= kSweepInputs) {
#pragma unroll
      for (int r = 0; r < kRows; r += kWarps) {
        if (r >= rows_left) break;
        CopyRow(row, to + r * (kSweepInputs / 4), kSweepInputs);
        row += row_stride;
      }
    } else {
      const int pieces_behind = static_cast<int>(threadIdx.x) % 32 * 4;
#pragma unroll 1
      for (int r = 0; r < rows_left; r += kWarps) {
        CopyRow(row, to + r * (kSweepInputs / 4), columns_left - pieces_behind);
        row += row_stride;
      }
    }
    from += kSweepInputs;
    columns_left -= kSweepInputs;
  }

 private:
  __device__ static void CopyRow(const float* from, float4* to, int columns) {
#pragma unroll
    for (int k = 0; k < kSweepInputs; k += 4 * 32) {
      if (k < columns) __pipeline_memcpy_async(to + k / 4, from + k, sizeof(float4));
    }
  }
};

// The lanes' sums of a segment by pairs of lanes: row r of the block's output n is number
// r * kOutputs + n. The pad spreads over banks what the threads read.
template <int kOut, int kRows>
struct SegmentSums {
  static constexpr int kOutputs = kSets * kOut;
  static constexpr int kCount = kOutputs * kRows;
  static constexpr int kCountOfThread = (kCount + kThreads - 1) / kThreads;
  float2 sums[kCount][kReduceLanes / 2 + 1];

  // visit(i, r, n) for this thread's sums, kCountOfThread at most.
  template <class Visit>
  __device__ static void ForEach(Visit visit) {
#pragma unroll
    for (int i = 0; i < kCountOfThread; ++i) {
      const int index = static_cast<int>(threadIdx.x) + kThreads * i;
      if (index < kCount) visit(i, index / kOutputs, index % kOutputs);
    }
  }
};

// The block's memory: x of the sweep that is added and of the next one; behind a segment, its sums.
template <int kOut, int kRows>
union GroupedOutputMemory {
  SweepTile<kRows> tiles[2];
  SegmentSums<kOut, kRows> segment;
};

// Adds one sweep: sums[o][r] of the lane.
template <int kOut, int kRows>
__device__ void AddSweep(const uint4 (&weights)[kOut], float factor, const SweepTile<kRows>& tile,
                         float (&sums)[kOut][kRows]) {
#pragma unroll
  for (int quarter = 0; quarter < 4; ++quarter) {
    const float4* x = tile.pieces[0] + PlaceOfPiece(LaneOfThread(), quarter);
    float w[kOut][4];
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
      const uint32_t words[4] = {weights[o].x, weights[o].y, weights[o].z, weights[o].w};
      DecodeE4m3(words[quarter], factor, w[o]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 values = x[r * (kSweepInputs / 4)];
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

// Adds a segment across the block's lanes: totals[i] is sum number threadIdx.x + kThreads i. The
// memory may hold tiles before, but after only behind another barrier.
// BITS: the segment of CanonicalReduce.
template <int kOut, int kRows>
__device__ void AddSegment(const float (&sums)[kOut][kRows], SegmentSums<kOut, kRows>& segment,
                           bool is_first,
                           float (&totals)[SegmentSums<kOut, kRows>::kCountOfThread]) {
  using Sums = SegmentSums<kOut, kRows>;
  __syncthreads();
#pragma unroll
  for (int o = 0; o < kOut; ++o) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int index = r * Sums::kOutputs + SetOfThread() * kOut + o;
      reinterpret_cast<float*>(segment.sums[index])[LaneOfThread()] = sums[o][r];
    }
  }
  __syncthreads();
  Sums::ForEach([&](int i, int r, int n) {
    float lanes[kReduceLanes];
#pragma unroll
    for (int pair = 0; pair < kReduceLanes / 2; ++pair) {
      const float2 sum = segment.sums[r * Sums::kOutputs + n][pair];
      lanes[2 * pair] = sum.x;
      lanes[2 * pair + 1] = sum.y;
    }
    const float sum = ButterflySum(lanes);
    totals[i] = is_first ? sum : totals[i] + sum;
  });
}

// A lane's weights of its kOut rows from `first_row` and their factor, requested a sweep ahead.
template <int kOut>
struct WeightsReader {
  const Fp8E4m3* from;
  const float* scale_from;
  int inputs, left, scale_step;
  uint4 next[kOut] = {};
  float next_factor = 0.0f;

  __device__ WeightsReader(const GroupedOutputLaunch& args, int first_row) {
    const int lane_k = LaneOfThread() * kE4m3Width;
    from = args.weights + static_cast<int64_t>(first_row) * args.inputs + lane_k;
    scale_from =
        args.scale + first_row / args.block * (args.inputs / args.block) + lane_k / args.block;
    inputs = args.inputs;
    left = args.inputs - lane_k;
    scale_step = kSweepInputs / args.block;
  }
  // Of the next sweep, if it has any.
  __device__ void LoadNext() {
    if (left <= 0) return;
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
      next[o] = *reinterpret_cast<const uint4*>(from + o * inputs);
    }
    next_factor = E4m3Factor(*scale_from);
    from += kSweepInputs;
    scale_from += scale_step;
    left -= kSweepInputs;
  }
};

// Blocks of a multiprocessor at once: as many as their sums leave registers for.
template <int kSums>
inline constexpr int kBlocksAtOnce = kSums < 40 ? 2 : 1;

// Grid: x = chunks of kRows rows, y = outputs, z = groups: chunks that share weights run together.
// kOut and a lane's 16 inputs divide the side of a block of scales, which divides a sweep.
template <int kOut, int kRows>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce<kOut * kRows>)
    GroupedOutputKernel(const __grid_constant__ GroupedOutputLaunch args) {
  using Sums = SegmentSums<kOut, kRows>;
  TP2_DYNAMIC_SHARED(float4, dynamic_memory);
  auto& memory = *reinterpret_cast<GroupedOutputMemory<kOut, kRows>*>(dynamic_memory);
  // Outputs are whole sets; sets past the last repeat it.
  const int block_first = static_cast<int>(blockIdx.y) * Sums::kOutputs;
  const int first = min(block_first + SetOfThread() * kOut, args.outputs - kOut);
  const int group = static_cast<int>(blockIdx.z);
  const int row = static_cast<int>(blockIdx.x) * kRows;
  const int row_count = min(kRows, args.rows - row);
  const int x_stride = args.groups * args.inputs;
  const float* x = args.o + static_cast<int64_t>(row) * x_stride + group * args.inputs;
  WeightsReader<kOut> weights_reader(args, group * args.outputs + first);
  TileCopier<kRows> x_copier(x, x_stride, row_count, args.inputs);
  weights_reader.LoadNext();
  AwaitPredecessor();
  x_copier.CopyNext(memory.tiles[0]);
  float totals[Sums::kCountOfThread] = {};
  float sums[kOut][kRows] = {};
#pragma unroll 1
  for (int sweep = 0; sweep * kSweepInputs < args.inputs; ++sweep) {
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    const int behind = (sweep + 1) * kSweepInputs;
    const bool ends_segment = (sweep + 1) % kSweepsPerSegment == 0 || behind >= args.inputs;
    uint4 weights[kOut];
#pragma unroll
    for (int o = 0; o < kOut; ++o) weights[o] = weights_reader.next[o];
    const float factor = weights_reader.next_factor;
    weights_reader.LoadNext();
    if (!ends_segment) x_copier.CopyNext(memory.tiles[(sweep + 1) % 2]);
    if (sweep * kSweepInputs + LaneOfThread() * kE4m3Width < args.inputs) {
      AddSweep(weights, factor, memory.tiles[sweep % 2], sums);
    }
    if (!ends_segment) continue;
    AddSegment(sums, memory.segment, sweep < kSweepsPerSegment, totals);
    if (behind >= args.inputs) break;
    __syncthreads();
    x_copier.CopyNext(memory.tiles[(sweep + 1) % 2]);
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[o][r] = 0.0f;
    }
  }
  Sums::ForEach([&](int i, int r, int n) {
    if (r >= row_count || block_first + n >= args.outputs) return;
    args.z[(static_cast<int64_t>(row + r) * args.groups + group) * args.outputs + block_first + n] =
        totals[i];
  });
}

unsigned ChunksOf(int rows, int chunk) { return static_cast<unsigned>((rows + chunk - 1) / chunk); }

// A way to share the work of wo_a among blocks. cost: instructions of a warp in a sweep, 16 kOut
// kRows to add, 44 kOut to decode, 4 kRows to read x and about 165 others.
struct GroupedOutputForm {
  void (*kernel)(GroupedOutputLaunch);
  int outputs, rows, cost;
  size_t shared_bytes;

  dim3 Grid(const GroupedOutputLaunch& args) const {
    return dim3(ChunksOf(args.rows, rows), ChunksOf(args.outputs, kSets * outputs),
                static_cast<unsigned>(args.groups));
  }
  // Of the multiprocessor with the most blocks.
  int64_t Cost(const GroupedOutputLaunch& args) const {
    const dim3 grid = Grid(args);
    const int64_t blocks = int64_t{grid.x} * grid.y * grid.z;
    return (blocks + args.multiprocessors - 1) / args.multiprocessors * cost;
  }
};

template <int kOut, int kRows>
constexpr GroupedOutputForm MakeForm() {
  constexpr int kInstructions = 16 * kOut * kRows + 44 * kOut + 4 * kRows + 165;
  return {GroupedOutputKernel<kOut, kRows>, kOut, kRows, kInstructions,
          sizeof(GroupedOutputMemory<kOut, kRows>)};
}

constexpr GroupedOutputForm kGroupedOutputForms[] = {MakeForm<4, 5>(),  MakeForm<8, 5>(),
                                                     MakeForm<4, 10>(), MakeForm<8, 10>(),
                                                     MakeForm<4, 15>(), MakeForm<4, 20>()};

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
