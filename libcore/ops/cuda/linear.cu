// The input transform of every product, and the fp16 path of the 3INST and mcg codebooks.
#include "libcore/math/exl3_codebook.h"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/preload.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kPrepareThreads = 1024;
constexpr int kPrepareWarps = kPrepareThreads / 32;
constexpr int kMaxQuantum = 32258;  // 127 * 254

// One 128-block of r = FWHT(x * suh), four elements per lane.
__device__ void TransformBlock(const float* x, const Fp16* suh, int block, float (&r)[4]) {
  const int k = block * 128 + threadIdx.x % 32 * 4;
  const float4 values = *reinterpret_cast<const float4*>(x + k);
  const uint2 signs = *reinterpret_cast<const uint2*>(suh + k);
  r[0] = values.x * ToFloat(Fp16{static_cast<uint16_t>(signs.x & 0xFFFFu)});
  r[1] = values.y * ToFloat(Fp16{static_cast<uint16_t>(signs.x >> 16)});
  r[2] = values.z * ToFloat(Fp16{static_cast<uint16_t>(signs.y & 0xFFFFu)});
  r[3] = values.w * ToFloat(Fp16{static_cast<uint16_t>(signs.y >> 16)});
  WarpFwht128(r);
}

// v = 254 * hi + lo with |lo| <= 127, for |v| <= 32258.
__device__ int HighPart(int v) { return (v + 127 + 254 * 128) / 254 - 128; }

struct RowPlace {
  int item;   // in the workspace
  int group;  // in the workspace
  int row;    // inside the group, 0 .. 3
};

// Writes the int8 parts of four neighbouring inputs where the tensor core's lanes read them.
__device__ void StoreQuanta(uint32_t* quanta, const RowPlace& place, int k_tiles, int k,
                            const int (&v)[4]) {
  const int in_tile = k % 16;
  uint16_t* words = reinterpret_cast<uint16_t*>(
      quanta + static_cast<int64_t>(place.group) * k_tiles * 32 + k / 64 * 128 + k / 16 % 4);
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const int a = v[2 * pair], b = v[2 * pair + 1];
    const int a_high = HighPart(a), b_high = HighPart(b);
    const int a_low = a - 254 * a_high, b_low = b - 254 * b_high;
    const int quarter = (in_tile % 8) / 2 + pair;
    const int half = in_tile / 8;
    const int high_word = 2 * place.row * 4 + quarter;
    words[8 * high_word + half] = static_cast<uint16_t>((a_high & 0xFF) | ((b_high & 0xFF) << 8));
    words[8 * (high_word + 4) + half] =
        static_cast<uint16_t>((a_low & 0xFF) | ((b_low & 0xFF) << 8));
  }
}

// The transformed row, spread over the block's warps: warp w holds 128-blocks w, w + 32, ... Blocks
// past what registers hold are computed again when they are read.
class TransformedRow {
 public:
  __device__ TransformedRow(const float* x, const DeviceMatrix& matrix)
      : x_(x), suh_(matrix.suh), block_count_(matrix.k / 128) {
#pragma unroll
    for (int i = 0; i < kHeldBlocks; ++i) {
      if (BlockOf(i) < block_count_) TransformBlock(x_, suh_, BlockOf(i), held_[i]);
    }
  }

  // body(block, r) for every block of this warp.
  template <class Body>
  __device__ void ForEachBlock(Body body) const {
#pragma unroll
    for (int i = 0; i < kHeldBlocks; ++i) {
      if (BlockOf(i) < block_count_) body(BlockOf(i), held_[i]);
    }
    for (int i = kHeldBlocks; BlockOf(i) < block_count_; ++i) {
      float r[4];
      TransformBlock(x_, suh_, BlockOf(i), r);
      body(BlockOf(i), r);
    }
  }

 private:
  static constexpr int kHeldBlocks = 4;

  __device__ static int BlockOf(int i) {
    return static_cast<int>(threadIdx.x) / 32 + i * kPrepareWarps;
  }

  const float* x_;
  const Fp16* suh_;
  int block_count_;
  float held_[kHeldBlocks][4];
};

__device__ void PrepareInteger(const LinearJob& job, const LinearWorkspace& work,
                               const RowPlace& place, const float* x) {
  __shared__ unsigned int largest;
  __shared__ long long warp_sums[kPrepareWarps];
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  const TransformedRow row(x, job.matrix);
  // Over bit patterns, so that a NaN counts as larger than infinity.
  unsigned int mine = 0;
  row.ForEachBlock([&mine](int, const float(&r)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) mine = max(mine, __float_as_uint(r[j]) & 0x7FFFFFFFu);
  });
  mine = __reduce_max_sync(kAllLanes, mine);
  if (threadIdx.x % 32 == 0) atomicMax(&largest, mine);
  __syncthreads();
  const float amax = __uint_as_float(largest);
  const bool is_finite = IsFinite(amax);
  const float factor =
      is_finite && amax >= 0x1p-100f ? static_cast<float>(kMaxQuantum) / amax : 0.0f;
  long long sum = 0;
  const int k_tiles = job.matrix.k / 16;
  row.ForEachBlock([&](int block, const float(&r)[4]) {
    int v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[j] = __float2int_rn((is_finite ? r[j] : 0.0f) * factor);
      sum += v[j];
    }
    StoreQuanta(work.quanta, place, k_tiles, block * 128 + static_cast<int>(threadIdx.x) % 32 * 4,
                v);
  });
  // A lane's sum fits int32 while k <= 2^19: at most 4096 blocks / 32 warps * 4 * 32258.
  const int warp_low = __reduce_add_sync(kAllLanes, static_cast<int>(sum & 0xFFFF));
  const int warp_high = __reduce_add_sync(kAllLanes, static_cast<int>(sum >> 16));
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = warp_high * 65536LL + warp_low;
  __syncthreads();
  if (threadIdx.x == 0) {
    long long row_sum = 0;
#pragma unroll
    for (int w = 0; w < kPrepareWarps; ++w) row_sum += warp_sums[w];
    work.row_sums[place.item] = row_sum;
    work.scales[place.item] = is_finite ? amax / static_cast<float>(kMaxQuantum) * 0x1p-24f
                                        : __uint_as_float(0x7FC00000u);
  }
}

// [k] of one item of the fp16 path.
__device__ float* HalvesOf(const LinearJob& job, const LinearWorkspace& work, int item) {
  return work.halves +
         (static_cast<int64_t>(job.first_group) * kRowsPerGroup + item) * job.matrix.k;
}

__device__ void PrepareHalf(const LinearJob& job, const LinearWorkspace& work,
                            const RowPlace& place, int item, const float* x) {
  __shared__ bool is_bad;
  if (threadIdx.x == 0) is_bad = false;
  __syncthreads();
  float* to = HalvesOf(job, work, item);
  TransformedRow(x, job.matrix).ForEachBlock([to](int block, const float(&r)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float a = ToFloat(ToFp16(r[j] * kHadamardNorm));
      to[block * 128 + threadIdx.x % 32 * 4 + j] = a;
      if (!IsFinite(a)) is_bad = true;
    }
  });
  __syncthreads();
  if (threadIdx.x == 0) {
    work.scales[place.item] = is_bad ? __uint_as_float(0x7FC00000u) : kHadamardNorm;
  }
}

// Grid: x = items, y = jobs; wide jobs behind narrow ones take `chunks` steps of y, each with as
// many items as a narrow job has.
__global__ void __launch_bounds__(kPrepareThreads)
    PrepareRowsKernel(const __grid_constant__ LinearJobs jobs, const LinearWorkspace work,
                      int chunks) {
  const int step = static_cast<int>(blockIdx.y);
  const int wide_step = max(0, step - jobs.narrow_jobs);
  const int index = step - wide_step + wide_step / chunks;
  const LinearJob& job = jobs.list != nullptr ? jobs.list[index] : jobs.single;
  const int item = static_cast<int>(blockIdx.x + wide_step % chunks * gridDim.x);
  if (item >= job.items) return;
  const int row = job.gather != nullptr ? job.gather[item] : item;
  const float* x = job.x + row * job.x_stride;
  const RowPlace place = {job.first_item + item, job.first_group + item / kRowsPerGroup,
                          item % kRowsPerGroup};
  if (job.matrix.codebook == kCodebookMul1) {
    PrepareInteger(job, work, place, x);
  } else {
    PrepareHalf(job, work, place, item, x);
  }
}

// State of position p of a tile of any width (exl3/decode.h).
__device__ uint32_t StateAt(const uint16_t* units, int bits, int p) {
  const int words = 8 * bits;
  const uint32_t* word = reinterpret_cast<const uint32_t*>(units);
  const int end = (p + 1) * bits;
  const int last = (end - 1) / 32;
  const uint32_t high = word[(last + words - 1) % words];
  return __funnelshift_rc(word[last], high, 32 * (last + 1) - end) & 0xFFFFu;
}

constexpr int kItemsPerThread = kRowsPerPass / 2;

// Adds the 16 inputs of a decoded k-tile to this thread's sums, ascending. Products of two halves
// are exact in fp32, so fusing cannot matter.
__device__ void AddKTile(const LinearJob& job, const LinearWorkspace& work, int k_tile, int column,
                         const float (&weights)[16][128], float (&sums)[kItemsPerThread]) {
#pragma unroll
  for (int i = 0; i < kItemsPerThread; ++i) {
    const int item = 2 * i + threadIdx.x / 128;
    if (item >= job.items) break;
    const float* a = HalvesOf(job, work, item) + k_tile * 16;
    for (int k = 0; k < 16; ++k) sums[i] = fmaf(a[k], weights[k][column], sums[i]);
  }
}

// Grid: x = blocks of 128 outputs, y = jobs. Written for clarity: these codebooks are not the
// mission's.
__global__ void __launch_bounds__(kThreads)
    HalfGemmKernel(const __grid_constant__ LinearJobs jobs, const LinearWorkspace work) {
  __shared__ float weights[16][128];
  __shared__ __align__(16) float totals[kRowsPerPass][128];
  const LinearJob& job = jobs.list != nullptr ? jobs.list[blockIdx.y] : jobs.single;
  const DeviceMatrix& matrix = job.matrix;
  if (job.items == 0 || matrix.codebook == kCodebookMul1) return;
  if (static_cast<int>(blockIdx.x) * 128 >= matrix.n) return;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int column = threadIdx.x % 128;
  float sums[kItemsPerThread] = {};
  for (int k_tile = 0; k_tile < matrix.k / 16; ++k_tile) {
    const uint16_t* tile = matrix.trellis + k_tile * matrix.tile_row_pitch +
                           static_cast<int64_t>(blockIdx.x * 8 + warp) * 16 * matrix.bits;
    __syncthreads();
    for (int j = 0; j < 8; ++j) {
      const uint16_t state = static_cast<uint16_t>(StateAt(tile, matrix.bits, 8 * lane + j));
      const Fp16 value =
          matrix.codebook == kCodebookMcg ? Exl3McgValue(state) : Exl3InstValue(state);
      weights[2 * (lane % 4) + (j & 1) + 8 * ((j >> 1) & 1)][warp * 16 + lane / 4 + 8 * (j >> 2)] =
          ToFloat(value);
    }
    __syncthreads();
    AddKTile(job, work, k_tile, column, weights, sums);
  }
#pragma unroll
  for (int i = 0; i < kItemsPerThread; ++i) totals[2 * i + threadIdx.x / 128][column] = sums[i];
  __syncthreads();
  for (int item = warp; item < job.items; item += kWarps) {
    float v[4];
    for (int j = 0; j < 4; ++j) v[j] = totals[item][4 * lane + j];
    WarpFwht128(v);
    const float scale = work.scales[job.first_item + item];
    const int n = static_cast<int>(blockIdx.x) * 128 + 4 * lane;
    for (int j = 0; j < 4; ++j) {
      job.y[item * job.y_stride + n + j] = (v[j] * scale) * ToFloat(matrix.svh[n + j]);
    }
  }
}

}  // namespace

void LaunchPrepareRows(const LinearJobs& jobs, const LinearWorkspace& work, cudaStream_t stream) {
  const int items = jobs.narrow_jobs > 0 ? kRowsPerGroup : jobs.max_items;
  const int chunks = (jobs.max_items + items - 1) / items;
  const int steps = jobs.narrow_jobs + (jobs.job_count - jobs.narrow_jobs) * chunks;
  const dim3 grid(static_cast<unsigned>(items), static_cast<unsigned>(steps));
  PrepareRowsKernel<<<grid, kPrepareThreads, 0, stream>>>(jobs, work, chunks);
}

void LaunchIntegerGemm(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                       cudaStream_t stream) {
  if (bits <= 2) return LaunchIntegerGemm12(bits, jobs, work, splits, stream);
  if (bits <= 4) return LaunchIntegerGemm34(bits, jobs, work, splits, stream);
  if (bits <= 6) return LaunchIntegerGemm56(bits, jobs, work, splits, stream);
  LaunchIntegerGemm78(bits, jobs, work, splits, stream);
}

void LaunchHalfGemm(const LinearJobs& jobs, const LinearWorkspace& work, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(jobs.max_outputs / 128),
                  static_cast<unsigned>(jobs.job_count));
  HalfGemmKernel<<<grid, kThreads, 0, stream>>>(jobs, work);
}

cudaError_t PreloadLinear() {
#define TP2_LINEAR
#include "libcore/ops/cuda/kernel_list.inc"
  return cudaSuccess;
}

cudaError_t PreloadKernels() {
  for (const auto preload :
       {PreloadLinear, PreloadRows, PreloadMix, PreloadAttention, PreloadMatVec, PreloadHead,
        PreloadExperts, PreloadRepack, PreloadIntegerGemm12, PreloadIntegerGemm34,
        PreloadIntegerGemm56, PreloadIntegerGemm78}) {
    if (const cudaError_t error = preload(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace tp2::cuda
