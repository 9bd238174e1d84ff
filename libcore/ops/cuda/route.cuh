// Grouping of rows by expert on the device: from choices to the job lists of the routed experts'
// products (RouteLaunch of kernels.h).
#pragma once

#include <cstdint>

#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/warp.cuh"

namespace tp2::cuda {

inline constexpr int kMaxRouteRows = 256;
inline constexpr int kJobWords = sizeof(LinearJob) / sizeof(uint32_t);
inline constexpr int kStagedJobs = 256;

// What a job is, before its matrices are known. Its first item's number is its first group's too:
// a job has no more groups than items.
struct JobPlace {
  int expert, items, first_item;
};

// Places of entries as bits.
struct EntryBits {
  uint32_t words[kMaxRouteEntries / 32];

  __device__ int CountBelow(int place) const {
    int count = 0;
    for (int i = 0; i < place / 32; ++i) count += __popc(words[i]);
    return place % 32 == 0 ? count : count + __popc(words[place / 32] << (32 - place % 32));
  }
};

// Shared memory of GroupRows.
struct RouteMemory {
  alignas(16) int keys[kMaxRouteEntries];  // expert, then row; of no entry: the largest
  int sorted[kMaxRouteEntries + kRowsPerJob];
  EntryBits job_begins;  // among the sorted
  JobPlace places[kMaxRouteEntries];
  alignas(16) uint32_t staged[kStagedJobs * kJobWords];
};

// A job of w1 (up = 0) or w3 (up = 1).
__device__ inline LinearJob UpJob(const RouteLaunch& args, const JobPlace& place, int up) {
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
__device__ inline LinearJob DownJob(const RouteLaunch& args, const JobPlace& place, int half) {
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
__device__ inline void WriteJobs(const RouteLaunch& args, int count, RouteMemory* memory) {
  uint32_t* const staged = memory->staged;
  const JobPlace* const places = memory->places;
  const int threads = static_cast<int>(blockDim.x), slots = min(threads, kStagedJobs);
  const int thread = static_cast<int>(threadIdx.x);
  const int up_jobs = 2 * count, all_jobs = (2 + args.halves) * count;
  uint32_t* const up_words = reinterpret_cast<uint32_t*>(args.up_jobs);
  uint32_t* const down_words = reinterpret_cast<uint32_t*>(args.down_jobs);
  for (int begin = 0; begin < all_jobs; begin += slots) {
    const int made = begin + thread, down = made - up_jobs;
    if (thread < slots && made < all_jobs) {
      reinterpret_cast<LinearJob*>(staged)[thread] =
          down < 0 ? UpJob(args, places[made / 2], made % 2)
                   : DownJob(args, places[down / args.halves], down % args.halves);
    }
    __syncthreads();
    const int words = min(slots, all_jobs - begin) * kJobWords;
    for (int i = thread; i < words; i += threads) {
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

// By a block of kMaxRouteEntries threads or more. Entry e = row * top_k + i: the i-th choice of a
// row. An expert's rows become jobs of at most kRowsPerJob. Choices may be other blocks'.
__device__ inline void GroupRows(const RouteLaunch& args, RouteMemory* memory) {
  int* const keys = memory->keys;
  int* const sorted = memory->sorted;
  EntryBits& job_begins = memory->job_begins;
  const int entries = args.rows * args.top_k;
  const int e = static_cast<int>(threadIdx.x);
  const int row = e / args.top_k;
  const bool is_entry = e < entries;
  const int key = is_entry
                      ? __ldcg(args.choices[row].experts + e % args.top_k) * kMaxRouteRows + row
                      : INT32_MAX;
  const float weight = is_entry ? __ldcg(args.choices[row].weights + e % args.top_k) : 0;
  if (e < kMaxRouteEntries) {
    keys[e] = key;
    sorted[kRowsPerJob + e] = INT32_MAX;
  }
  if (e < kRowsPerJob) sorted[e] = INT32_MAX;
  if (e < kMaxRouteEntries / 32) job_begins.words[e] = 0;
  __syncthreads();
  const int expert_key = key / kMaxRouteRows * kMaxRouteRows;  // none of the expert's is smaller
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
    while (items < kRowsPerJob && sorted[position + items] < expert_key + kMaxRouteRows) ++items;
    memory->places[job_begins.CountBelow(position)] = {key / kMaxRouteRows, items, position};
  }
  const int count = job_begins.CountBelow(entries);
  if (e == 0) {
    *args.up_count = 2 * count;
    *args.down_count = args.halves * count;
  }
  __syncthreads();
  WriteJobs(args, count, memory);
}

}  // namespace tp2::cuda
