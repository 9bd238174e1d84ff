// The grouped output projection, routing and confidence: canonical dot products.
#include "libcore/ops/cuda/matvec.cuh"

#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <iterator>

#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/preload.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kRowChunk = 5;

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
// The block's warps share the rows of x. kOut rows of weights lie in one block of scales, and so do
// a lane's weights of a sweep. One block a multiprocessor.
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

constexpr int kEight = Half16Form::kWidth;
constexpr int kSegmentEights = kReduceSegment<kEight> / kEight;

int SegmentsOf(int columns) {
  return (columns + kReduceSegment<kEight> - 1) / kReduceSegment<kEight>;
}

struct Eight {
  float4 low, high;
};

// A row in eights in shared memory. Their halves lie apart: neighbouring lanes' reads of
// neighbouring eights then meet in no bank.
struct EightsRow {
  float4* low;
  int count;

  __device__ Eight At(int i) const { return {low[i], low[count + i]}; }
  __device__ void Set(int i, const Eight& eight) const {
    low[i] = eight.low;
    low[count + i] = eight.high;
  }
};

__device__ Eight Widened(const uint4& raw, bool is_fp16) {
  const auto pair = [is_fp16](uint32_t bits, float& first, float& second) {
    if (is_fp16) return WidenHalves(bits, first, second);
    first = __uint_as_float(bits << 16);
    second = __uint_as_float(bits & 0xFFFF0000u);
  };
  Eight eight;
  pair(raw.x, eight.low.x, eight.low.y);
  pair(raw.y, eight.low.z, eight.low.w);
  pair(raw.z, eight.high.x, eight.high.y);
  pair(raw.w, eight.high.z, eight.high.w);
  return eight;
}

// A row of eights.count 16-bit eights at `row` into shared memory, two loads of a thread in flight.
__device__ void Stage(const uint16_t* row, bool is_fp16, const EightsRow& eights) {
  const uint4* raw = reinterpret_cast<const uint4*>(row);
  const int threads = static_cast<int>(blockDim.x);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < eights.count; i += 2 * threads) {
    const int next = min(i + threads, eights.count - 1);
    const uint4 first = raw[i], second = raw[next];
    eights.Set(i, Widened(first, is_fp16));
    if (i + threads < eights.count) eights.Set(next, Widened(second, is_fp16));
  }
}

__device__ float AddEight(float sum, const Eight& w, const Eight& x) {
  sum = fmaf(w.low.x, x.low.x, sum);
  sum = fmaf(w.low.y, x.low.y, sum);
  sum = fmaf(w.low.z, x.low.z, sum);
  sum = fmaf(w.low.w, x.low.w, sum);
  sum = fmaf(w.high.x, x.high.x, sum);
  sum = fmaf(w.high.y, x.high.y, sum);
  sum = fmaf(w.high.z, x.high.z, sum);
  return fmaf(w.high.w, x.high.w, sum);
}

// One segment of a canonical dot by one warp; every lane gets it. x(i): its eight number i. A batch
// of them is requested at a time.
template <class X>
__device__ float SegmentDot(const EightsRow& weights, int segment, X x) {
  constexpr int kBatch = 4;
  const int first = segment * kSegmentEights + static_cast<int>(threadIdx.x) % 32;
  const int end = min(weights.count, (segment + 1) * kSegmentEights);
  float sum = 0.0f;
#pragma unroll 1
  for (int begin = first; begin < end; begin += kBatch * kReduceLanes) {
    Eight values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int at = begin + i * kReduceLanes;
      if (at < end) values[i] = x(at);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int at = begin + i * kReduceLanes;
      if (at < end) sum = AddEight(sum, weights.At(at), values[i]);
    }
  }
  return WarpButterfly(sum);
}

// Unsigned numbers in the order of the scores; above 0, which is no candidate's. Scores are never
// -0: the affinity in them is not negative.
__device__ unsigned ScoreKey(float score) {
  const unsigned bits = __float_as_uint(score);
  return max(1u, (bits >> 31) != 0 ? ~bits : bits | 0x80000000u);
}

struct Candidate {
  unsigned key;
  int expert;
  float affinity;
};

// The best of the lane's experts lane, lane + 32, ...; taken ones have a negative affinity.
__device__ Candidate LaneBest(int experts, const float* bias, const float* affinity) {
  constexpr int kBatch = 4;
  Candidate best = {0, experts, 0.0f};
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < experts; i += 32 * kBatch) {
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int e = i + 32 * j;
      const bool is_there = e < experts;
      const float value = is_there ? affinity[e] : -1.0f;
      const unsigned key = value < 0.0f ? 0 : ScoreKey(value + bias[is_there ? e : 0]);
      if (key > best.key) best = {key, e, value};
    }
  }
  return best;
}

// One row by one warp; shared: bias [experts] and affinity [experts], which it destroys.
// ChooseExperts of math/gate.h: GateBefore is a total order, so rounds of "best of what is left"
// choose what insertion chooses.
__device__ void ChooseRow(const RouterLaunch& args, int row, const float* bias, float* affinity) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Candidate own = {};
  int chosen = 0;  // of round `lane`
  float chosen_affinity = 0.0f;
  float sum = 0.0f;
  bool is_stale = true;
#pragma unroll 1
  for (int i = 0; i < args.top_k; ++i) {
    if (is_stale) own = LaneBest(args.experts, bias, affinity);
    const unsigned key = __reduce_max_sync(kAllLanes, own.key);
    const int expert = __reduce_min_sync(kAllLanes, own.key == key ? own.expert : args.experts);
    const float value = __shfl_sync(kAllLanes, own.affinity, expert % 32);
    sum = sum + value;
    is_stale = own.expert == expert;
    if (is_stale) affinity[expert] = -1.0f;
    if (lane == i) {
      chosen = expert;
      chosen_affinity = value;
    }
  }
  if (lane >= kMaxExpertsPerToken) return;
  args.choices[row].experts[lane] = chosen;
  args.choices[row].weights[lane] = (chosen_affinity / (sum + 1e-20f)) * args.route_scale;
}

// Affinities of `count` logits into shared memory; the next logit is on its way meanwhile.
__device__ void Affinities(const float* logits, int count, float* affinity, int* error) {
  const int threads = static_cast<int>(blockDim.x);
  const int first = static_cast<int>(threadIdx.x);
  float next = first < count ? __ldcg(logits + first) : 0.0f;
#pragma unroll 1
  for (int i = first; i < count; i += threads) {
    const float logit = next;
    if (i + threads < count) next = __ldcg(logits + i + threads);
    float value = GateAffinity(logit);
    if (value != value) {
      LatchError(error, KernelError::kRouterNan);
      value = 0.0f;
    }
    affinity[i] = value;
  }
}

constexpr int kRouterWarps = 3 * kRowChunk;  // one round for up to 6144 inputs
constexpr int kMaxRouterExperts = 4096;      // that a config may have
constexpr int kMaxRouterBytes = sizeof(float) * (kRowChunk + 1) * kMaxRouterExperts;

// Grid: x = experts, y = chunks of rows; a warp takes a segment of a row at a time. The last block
// of a chunk chooses its rows' experts. Dynamic shared memory: the expert's weights, in their place
// later the chunk's affinities, then the bias. Two blocks share a multiprocessor.
__global__ void __launch_bounds__(32 * kRouterWarps, 2)
    RouterKernel(const __grid_constant__ RouterLaunch args) {
  TP2_DYNAMIC_SHARED(float4, router_memory);
  __shared__ float sums[kMaxSegments * kRowChunk];
  __shared__ bool is_last;
  const int expert = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y) * kRowChunk;
  const int row_count = min(kRowChunk, args.rows - row);
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const EightsRow weights = {router_memory, args.dim / kEight};
  Stage(args.gate.bits + static_cast<int64_t>(expert) * args.dim, args.gate.is_fp16, weights);
  float* const affinity = reinterpret_cast<float*>(router_memory);
  float* const bias = affinity + max(args.dim, kRowChunk * args.experts);
#pragma unroll 1
  for (int e = static_cast<int>(threadIdx.x); e < args.experts; e += 32 * warps) {
    bias[e] = args.bias[e];
  }
  AwaitPredecessor();
  __syncthreads();
  const int segments = (weights.count + kSegmentEights - 1) / kSegmentEights;
#pragma unroll 1
  for (int i = warp; i < segments * kRowChunk; i += warps) {
    const int r = i % kRowChunk;
    if (r >= row_count) continue;
    const auto* x =
        reinterpret_cast<const Eight*>(args.x + static_cast<int64_t>(row + r) * args.dim);
    const float sum = SegmentDot(weights, i / kRowChunk, [x](int at) { return x[at]; });
    if (lane == 0) sums[i] = sum;
  }
  __syncthreads();
  float* const logits = args.logits + static_cast<int64_t>(row) * args.experts;
  if (warp == 0) {
    if (lane < row_count) {
      float total = sums[lane];
#pragma unroll 1
      for (int s = 1; s < segments; ++s) total = total + sums[s * kRowChunk + lane];
      logits[lane * args.experts + expert] = total;
    }
    __syncwarp();
    if (lane == 0) {
      is_last = CountArrival(args.arrivals + blockIdx.y) + 1 == gridDim.x;
      if (is_last) args.arrivals[blockIdx.y] = 0;
    }
  }
  __syncthreads();
  if (!is_last) return;
  Affinities(logits, row_count * args.experts, affinity, args.error);
  __syncthreads();
  if (warp < row_count) ChooseRow(args, row + warp, bias, affinity + warp * args.experts);
}

constexpr int kMaxConfidenceThreads = 1024;
constexpr int kMaxConfidenceColumns = 8192 + 2048;  // that a config may have
constexpr int kMaxConfidenceBytes = 2 * sizeof(float) * kMaxConfidenceColumns;

// One block per (request, row). All threads bring an eight of the weights and of the collapsed row
// or, behind it, of the fed token's embedding into shared memory; then a warp takes a segment.
// Dynamic shared memory: both rows.
__global__ void __launch_bounds__(kMaxConfidenceThreads)
    ConfidenceKernel(const __grid_constant__ ConfidenceLaunch args) {
  TP2_DYNAMIC_SHARED(float4, confidence_memory);
  __shared__ float sums[kMaxSegments];
  AwaitPredecessor();
  const int request = static_cast<int>(blockIdx.y);
  const int row = static_cast<int>(blockIdx.x);
  const int count = args.weight.columns / kEight, dim_count = args.dim / kEight;
  const EightsRow weights = {confidence_memory, count};
  const EightsRow joined = {confidence_memory + 2 * count, count};
  const auto* weight = reinterpret_cast<const uint4*>(args.weight.bits);
  const auto* xc = reinterpret_cast<const Eight*>(
      args.xc + (static_cast<int64_t>(request) * args.n_out + row) * args.dim);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    const uint4 raw = weight[i];
    if (i < dim_count) {
      joined.Set(i, xc[i]);
    } else {
      const int64_t token = args.fed[request * args.fed_stride + row];
      const auto* embedding =
          reinterpret_cast<const uint4*>(args.embed.bits + token * args.embed.columns);
      joined.Set(i, Widened(embedding[i - dim_count], args.embed.is_fp16));
    }
    weights.Set(i, Widened(raw, args.weight.is_fp16));
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  const int segments = (count + kSegmentEights - 1) / kSegmentEights;
#pragma unroll 1
  for (int s = warp; s < segments; s += warps) {
    const float sum = SegmentDot(weights, s, [&joined](int at) { return joined.At(at); });
    if (threadIdx.x % 32 == 0) sums[s] = sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = sums[0];
#pragma unroll 1
  for (int s = 1; s < segments; ++s) total = total + sums[s];
  args.logits[request * args.block_rows + row] = total;
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

void LaunchRouter(const RouterLaunch& args, const Queue& queue) {
  const dim3 grid(static_cast<unsigned>(args.experts), ChunksOf(args.rows, kRowChunk));
  const int warps = std::min(kRouterWarps, kRowChunk * SegmentsOf(args.dim));
  const int shared = std::max(args.dim, kRowChunk * args.experts) + args.experts;
  Launch(queue, RouterKernel, grid, 32 * warps, sizeof(float) * shared, args);
}

void LaunchConfidence(const ConfidenceLaunch& args, const Queue& queue) {
  const dim3 grid(static_cast<unsigned>(args.n_out), static_cast<unsigned>(args.requests));
  const int columns = args.weight.columns;
  const int threads = std::min(kMaxConfidenceThreads, (columns / kEight + 31) / 32 * 32);
  Launch(queue, ConfidenceKernel, grid, threads, 2 * sizeof(float) * columns, args);
}

cudaError_t PreloadMatVec() {
#define TP2_MATVEC
#include "libcore/ops/cuda/kernel_list.inc"
  for (const GroupedOutputForm& form : kGroupedOutputForms) {
    const cudaError_t error =
        cudaFuncSetAttribute(form.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(form.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  const cudaError_t error = cudaFuncSetAttribute(
      RouterKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxRouterBytes);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(ConfidenceKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kMaxConfidenceBytes);
}

}  // namespace tp2::cuda
