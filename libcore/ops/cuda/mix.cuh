// Hyper-connection coefficients: the dot products of a row's four streams, then one warp per row.
// Blocks of 5 warps or more, of a kernel of their own or of one that has time for them: nothing
// needs the coefficients before the next Enter.
#pragma once

#include "libcore/math/transcendental.h"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {

// Rows that share a block's weights.
inline constexpr int kMixTileRows = 5;
inline constexpr int kMixSegment = kReduceSegment<4>;

inline int MixSegmentsOf(int dim) { return (kStreams * dim + kMixSegment - 1) / kMixSegment; }

// Blocks that a launch needs: segments, of each tile of rows.
inline int MixBlocksOf(const StreamDotsLaunch& dots) {
  return MixSegmentsOf(dots.dim) * ((dots.rows + kMixTileRows - 1) / kMixTileRows);
}

struct MixTile {
  int row, rows;
  int segment, segments;

  __device__ MixTile(const StreamDotsLaunch& args, int block)
      : segments((kStreams * args.dim + kMixSegment - 1) / kMixSegment) {
    row = block / segments * kMixTileRows;
    rows = min(kMixTileRows, args.rows - row);
    segment = block % segments;
  }
  // Where the segments' part of a sum of a row lies.
  __device__ int64_t PartAt(int of_row, int of_segment) const {
    return (static_cast<int64_t>(row + of_row) * segments + of_segment) * kMixSums;
  }
};

__device__ inline float4 FourStreams(const Bf16* from) {
  const uint2 raw = *reinterpret_cast<const uint2*>(from);
  return {ToFloat(Bf16{static_cast<uint16_t>(raw.x & 0xFFFFu)}),
          ToFloat(Bf16{static_cast<uint16_t>(raw.x >> 16)}),
          ToFloat(Bf16{static_cast<uint16_t>(raw.y & 0xFFFFu)}),
          ToFloat(Bf16{static_cast<uint16_t>(raw.y >> 16)})};
}

// The lane's weights of one sum's segment. dim is a multiple of 128, so a sweep is whole or absent.
struct MixWeights {
  float4 sweeps[kSweepsPerSegment];

  __device__ void Load(const StreamDotsLaunch& args, int sum, int first, int end) {
    if (sum >= args.outputs) return;
    const float* const w = args.fn + static_cast<int64_t>(sum) * kStreams * args.dim;
#pragma unroll
    for (int i = 0; i < kSweepsPerSegment; ++i) {
      const int k = first + i * kReduceLanes * 4;
      if (k < end) sweeps[i] = __ldg(reinterpret_cast<const float4*>(w + k));
    }
  }
};

// One segment of a tile's canonical sums (V = 4) of w . x, or of x . x, by one warp.
__device__ inline void DotSegment(const StreamDotsLaunch& args, const MixTile& tile,
                                  const MixWeights& weights, bool is_square, int first, int end,
                                  float (&sums)[kMixTileRows]) {
  const int columns = kStreams * args.dim;
  const Bf16* x[kMixTileRows];
#pragma unroll
  for (int r = 0; r < kMixTileRows; ++r) {
    // The last row stands in for those that are not there.
    x[r] = args.streams + static_cast<int64_t>(tile.row + min(r, tile.rows - 1)) * columns;
    sums[r] = 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kSweepsPerSegment; ++i) {
    const int k = first + i * kReduceLanes * 4;
    if (k >= end) break;
#pragma unroll
    for (int r = 0; r < kMixTileRows; ++r) {
      const float4 v = FourStreams(x[r] + k);
      const float4 w = is_square ? v : weights.sweeps[i];
      sums[r] = fmaf(w.x, v.x, sums[r]);
      sums[r] = fmaf(w.y, v.y, sums[r]);
      sums[r] = fmaf(w.z, v.z, sums[r]);
      sums[r] = fmaf(w.w, v.w, sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kMixTileRows; ++r) sums[r] = WarpButterfly(sums[r]);
}

// The sums of block number `block` of MixBlocksOf(args), which awaits the predecessor. True in all
// threads of the block that ends a tile of rows: all sums of these are there.
__device__ inline bool DotStreams(const StreamDotsLaunch& args, const MixTile& tile) {
  __shared__ bool is_last;
  const int lane = static_cast<int>(threadIdx.x) % 32, warps = static_cast<int>(blockDim.x) / 32;
  const int begin = tile.segment * kMixSegment;
  const int first = begin + 4 * lane, end = min(kStreams * args.dim, begin + kMixSegment);
  int sum = static_cast<int>(threadIdx.x) / 32;
  MixWeights weights = {};
  weights.Load(args, sum, first, end);
  AwaitPredecessor();
#pragma unroll 1
  while (sum <= args.outputs) {
    float sums[kMixTileRows];
    DotSegment(args, tile, weights, sum == args.outputs, first, end, sums);
#pragma unroll
    for (int r = 0; r < kMixTileRows; ++r) {
      if (lane == 0 && r < tile.rows) args.partials[tile.PartAt(r, tile.segment) + sum] = sums[r];
    }
    sum += warps;
    weights.Load(args, sum, first, end);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = IsLastArrival(args.arrivals + tile.row / kMixTileRows,
                            static_cast<unsigned>(tile.segments));
  }
  __syncthreads();
  return is_last;
}

// Sum number `sum` of a row of the tile: its segments in ascending order.
__device__ inline float SumOfSegments(const StreamDotsLaunch& args, const MixTile& tile, int row,
                                      int sum) {
  const float* const from = args.partials + sum;
  float total = __ldcg(from + tile.PartAt(row, 0));
#pragma unroll 10
  for (int s = 1; s < tile.segments; ++s) total = total + __ldcg(from + tile.PartAt(row, s));
  return total;
}

__device__ inline float InverseRmsOf(float sum, const StreamDotsLaunch& args) {
  return Rsqrt(sum / static_cast<float>(kStreams * args.dim) + args.norm_eps);
}

// Lane 4 i + j of 16 holds c[i][j].
// BITS: SinkhornStep of math/mixing.h.
__device__ inline float WarpSinkhornStep(float c, int lane, bool over_rows, float eps) {
  float sum = 0.0f;
#pragma unroll
  for (int b = 0; b < kStreams; ++b) {
    const int from = over_rows ? b * kStreams + lane % kStreams : lane / kStreams * kStreams + b;
    sum = sum + __shfl_sync(kAllLanes, c, from);
  }
  return c / (sum + eps);
}

// One row by one warp: ComputeMix of math/mixing.h with a lane per coefficient, the same operations
// in the same order.
__device__ inline void MixRow(const MixLaunch& args, const MixTile& tile, int row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float dot = SumOfSegments(args.dots, tile, row, min(lane, kMixOutputs));
  const float inverse = InverseRmsOf(__shfl_sync(kAllLanes, dot, kMixOutputs), args.dots);
  MixCoefficients& out = args.mix[tile.row + row];
  const int group = lane < kStreams ? 0 : (lane < 2 * kStreams ? 1 : 2);
  const float value =
      lane < kMixOutputs ? fmaf(dot * inverse, args.scale[group], args.base[lane]) : 0.0f;
  if (group == 0) out.pre[lane] = Sigmoid(value) + args.hc_eps;
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
  float c = power / sum + args.hc_eps;
  c = WarpSinkhornStep(c, lane, true, args.hc_eps);
  for (int i = 1; i < args.sinkhorn_iterations; ++i) {
    c = WarpSinkhornStep(c, lane, false, args.hc_eps);
    c = WarpSinkhornStep(c, lane, true, args.hc_eps);
  }
  if (lane < kStreams * kStreams) out.comb[lane / kStreams][lane % kStreams] = c;
}

// Block number `block` of MixBlocksOf(args.dots).
__device__ inline void MixBlock(const MixLaunch& args, int block) {
  const MixTile tile(args.dots, block);
  if (!DotStreams(args.dots, tile)) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < tile.rows) MixRow(args, tile, warp);
}

// Rows of a grid of `columns` blocks that hold the mix, which may be none.
inline int MixGridRows(const MixLaunch& args, int columns) {
  return (MixBlocksOf(args.dots) + columns - 1) / columns;
}

// The calling block of row number `row` of those.
__device__ inline void MixBlockBeside(const MixLaunch& args, int row) {
  const int block = row * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  const MixTile tile(args.dots, block);
  if (tile.rows <= 0) return AwaitPredecessor();
  MixBlock(args, block);
}

}  // namespace tp2::cuda
