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

// What a job is, before its matrices are known.
struct JobPlace {
  int job, items, first_item, first_group;
};

__device__ void WriteJobs(const RouteLaunch& args, int expert, const JobPlace& place) {
  const DeviceExpert& weights = args.experts[expert];
  const int32_t* rows = args.item_rows + place.first_item;
  const int64_t offset = static_cast<int64_t>(place.first_item) * args.channels;
  LinearJob job;
  job.items = place.items;
  for (int up = 0; up < 2; ++up) {
    job.matrix = up == 0 ? weights.w1 : weights.w3;
    job.x = args.x;
    job.x_stride = args.dim;
    job.gather = rows;
    job.y = (up == 0 ? args.gate : args.up) + offset;
    job.y_stride = args.channels;
    job.first_item = up * args.item_capacity + place.first_item;
    job.first_group = up * args.group_capacity + place.first_group;
    args.up_jobs[2 * place.job + up] = job;
  }
  int begin = 0;
  for (int half = 0; half < args.halves; ++half) {
    job.matrix = weights.w2[half];
    job.x = args.gate + offset + begin;
    job.up = args.up + offset + begin;
    job.weights = args.item_weights + place.first_item;
    job.x_stride = args.channels;
    job.gather = nullptr;
    job.y = args.parts +
            (static_cast<int64_t>(half) * args.item_capacity + place.first_item) * args.dim;
    job.y_stride = args.dim;
    job.first_item = half * args.item_capacity + place.first_item;
    job.first_group = half * args.group_capacity + place.first_group;
    args.down_jobs[args.halves * place.job + half] = job;
    begin += job.matrix.k;
  }
}

// One block. Entry e = row * top_k + i: the i-th choice of a row. An expert's rows become jobs of
// at most kRowsPerGroup, so that the products need registers for one group only; few experts have
// more.
__global__ void __launch_bounds__(kThreads) RouteKernel(const __grid_constant__ RouteLaunch args) {
  AwaitPredecessor();
  __shared__ int ids[kMaxEntries];
  __shared__ int rows_of[kMaxEntries];
  __shared__ int jobs_of[kMaxEntries];  // of the entry's expert; 0 but for its lowest row's entry
  const int entries = args.rows * args.top_k;
  const int e = threadIdx.x;
  const int row = e / args.top_k;
  if (e < entries) {
    ids[e] = args.choices[row].experts[e % args.top_k];
    rows_of[e] = row;
  }
  for (int job = e; job < 2 * args.job_capacity; job += kThreads) args.up_jobs[job].items = 0;
  for (int job = e; job < args.halves * args.job_capacity; job += kThreads) {
    args.down_jobs[job].items = 0;
  }
  __syncthreads();
  int position = 0, in_row = 0, same = 0, rank = 0;  // rank: among its expert's entries
  if (e < entries) {
    for (int other = 0; other < entries; ++other) {
      const int other_row = rows_of[other];
      if (ids[other] < ids[e]) {
        ++position;
        if (other_row == row) ++in_row;
      } else if (ids[other] == ids[e]) {
        ++same;
        if (other_row < row) {
          ++position;
          ++rank;
        }
      }
    }
    jobs_of[e] = rank == 0 ? GroupsOf(same) : 0;
    args.item_rows[position] = row;
    args.item_weights[position] = args.choices[row].weights[e % args.top_k];
    args.row_items[row * args.top_k + in_row] = position;
  }
  __syncthreads();
  if (e >= entries || rank % kRowsPerGroup != 0) return;
  int jobs_before = 0;
  for (int other = 0; other < entries; ++other) {
    if (ids[other] < ids[e]) jobs_before += jobs_of[other];
  }
  // A job is one group, so its number is its group's too.
  const int job = jobs_before + rank / kRowsPerGroup;
  WriteJobs(args, ids[e], {job, min(kRowsPerGroup, same - rank), position, job});
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
