// Routed and shared experts around the products: grouping of rows by expert on the device, the sum
// of their outputs in ascending expert order.
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/launch.cuh"
#include "libcore/ops/cuda/preload.cuh"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxEntries = kThreads;  // rows * experts per token
constexpr int kMaxRows = 256;
constexpr int kJobWords = sizeof(LinearJob) / sizeof(uint32_t);

// What a job is, before its matrices are known. Its first item's number is its first group's too:
// a job has no more groups than items.
struct JobPlace {
  int expert, items, first_item;
};

// A job of w1 (up = 0) or w3 (up = 1).
__device__ LinearJob UpJob(const RouteLaunch& args, const JobPlace& place, int up) {
  const DeviceExpert& weights = args.experts[place.expert];
  LinearJob job;
  job.matrix = up == 0 ? weights.w1 : weights.w3;
  job.x = args.x;
  job.x_stride = args.dim;
  job.gather = args.item_rows + place.first_item;
  job.y = (up == 0 ? args.gate : args.up) + static_cast<int64_t>(place.first_item) * args.channels;
  job.y_stride = args.channels;
  job.items = place.items;
  job.first_item = up * args.item_capacity + place.first_item;
  job.first_group = up * args.group_capacity + place.first_item;
  return job;
}

// A job of a half of w2; halves are equally long.
__device__ LinearJob DownJob(const RouteLaunch& args, const JobPlace& place, int half) {
  LinearJob job;
  job.matrix = args.experts[place.expert].w2[half];
  const int64_t begin = static_cast<int64_t>(place.first_item) * args.channels +
                        static_cast<int64_t>(half) * job.matrix.k;
  job.x = args.gate + begin;
  job.x_stride = args.channels;
  job.up = args.up + begin;
  job.weights = args.item_weights + place.first_item;
  job.y =
      args.parts + (static_cast<int64_t>(half) * args.item_capacity + place.first_item) * args.dim;
  job.y_stride = args.dim;
  job.items = place.items;
  job.first_item = half * args.item_capacity + place.first_item;
  job.first_group = half * args.group_capacity + place.first_item;
  return job;
}

// Both lists of `count` jobs per matrix. A thread makes a job; it is copied from shared memory,
// where neighbouring threads write neighbouring words.
__device__ void WriteJobs(const RouteLaunch& args, const JobPlace* places, int count) {
  __shared__ __align__(16) uint32_t staged[kThreads * kJobWords];
  const int thread = static_cast<int>(threadIdx.x);
  const int up_jobs = 2 * count, all_jobs = (2 + args.halves) * count;
  uint32_t* const up_words = reinterpret_cast<uint32_t*>(args.up_jobs);
  uint32_t* const down_words = reinterpret_cast<uint32_t*>(args.down_jobs);
  for (int begin = 0; begin < all_jobs; begin += kThreads) {
    const int made = begin + thread, down = made - up_jobs;
    if (down < 0) {
      reinterpret_cast<LinearJob*>(staged)[thread] = UpJob(args, places[made / 2], made % 2);
    } else if (made < all_jobs) {
      reinterpret_cast<LinearJob*>(staged)[thread] =
          DownJob(args, places[down / args.halves], down % args.halves);
    }
    __syncthreads();
    const int words = min(kThreads, all_jobs - begin) * kJobWords;
    for (int i = thread; i < words; i += kThreads) {
      const int at = begin * kJobWords + i, down_at = at - up_jobs * kJobWords;
      if (down_at < 0) {
        up_words[at] = staged[i];
      } else {
        down_words[down_at] = staged[i];
      }
    }
    __syncthreads();
  }
}

// Places of entries as bits.
struct EntryBits {
  uint32_t words[kMaxEntries / 32];

  __device__ int CountBelow(int place) const {
    int count = 0;
    for (int i = 0; i < place / 32; ++i) count += __popc(words[i]);
    return place % 32 == 0 ? count : count + __popc(words[place / 32] << (32 - place % 32));
  }
};

// One block. Entry e = row * top_k + i: the i-th choice of a row. An expert's rows become jobs of
// at most kRowsPerJob.
__global__ void __launch_bounds__(kThreads) RouteKernel(const __grid_constant__ RouteLaunch args) {
  AwaitPredecessor();
  __shared__ __align__(16) int keys[kMaxEntries];  // expert, then row; of no entry: the largest
  __shared__ int sorted[kMaxEntries + kRowsPerJob];
  __shared__ EntryBits job_begins;  // among the sorted
  __shared__ JobPlace places[kMaxEntries];
  const int entries = args.rows * args.top_k;
  const int e = static_cast<int>(threadIdx.x);
  const int row = e / args.top_k;
  const bool is_entry = e < entries;
  const int key = is_entry ? args.choices[row].experts[e % args.top_k] * kMaxRows + row : INT32_MAX;
  const float weight = is_entry ? args.choices[row].weights[e % args.top_k] : 0;
  keys[e] = key;
  sorted[kRowsPerJob + e] = INT32_MAX;
  if (e < kRowsPerJob) sorted[e] = INT32_MAX;
  if (e < kMaxEntries / 32) job_begins.words[e] = 0;
  __syncthreads();
  const int expert_key = key / kMaxRows * kMaxRows;  // none of the expert's is smaller
  int position = 0, expert_begin = 0;
  bool begins = false;
  if (is_entry) {
    for (int i = 0; i < entries; i += 4) {
      const int4 four = *reinterpret_cast<const int4*>(keys + i);
      const int others[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        position += others[j] < key ? 1 : 0;
        expert_begin += others[j] < expert_key ? 1 : 0;
      }
    }
    int in_row = 0;
    for (int i = row * args.top_k; i < (row + 1) * args.top_k; ++i) in_row += keys[i] < key ? 1 : 0;
    args.item_rows[position] = row;
    args.item_weights[position] = weight;
    args.row_items[row * args.top_k + in_row] = position;
    sorted[position] = key;
    begins = (position - expert_begin) % kRowsPerJob == 0;
    if (begins) atomicOr(job_begins.words + position / 32, 1u << position % 32);
  }
  __syncthreads();
  if (begins) {
    int items = 1;
    while (items < kRowsPerJob && sorted[position + items] < expert_key + kMaxRows) ++items;
    places[job_begins.CountBelow(position)] = {key / kMaxRows, items, position};
  }
  const int count = job_begins.CountBelow(entries);
  if (e == 0) {
    *args.up_count = 2 * count;
    *args.down_count = args.halves * count;
  }
  __syncthreads();
  WriteJobs(args, places, count);
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
