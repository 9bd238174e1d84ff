// A block's job in shared memory, where its fields cost a few cycles.
#pragma once

#include <cstdint>

#include "libcore/ops/cuda/device_types.h"

namespace tp2::cuda {

// Threads meet before another one is fetched.
template <class LoadWord>
__device__ inline const LinearJob& FetchJob(const LinearJob* job, LoadWord load) {
  constexpr int kWords = sizeof(LinearJob) / sizeof(uint32_t);
  __shared__ __align__(16) uint32_t words[kWords];
  const int i = static_cast<int>(threadIdx.x);
  if (i < kWords) words[i] = load(reinterpret_cast<const uint32_t*>(job) + i);
  __syncthreads();
  return *reinterpret_cast<const LinearJob*>(words);
}

// One of a list, and how many there are. Written by a kernel that has ended, but perhaps after this
// multiprocessor cached their place.
__device__ inline const LinearJob& FetchJob(const JobList& list, int number) {
  return FetchJob(list.jobs + number, [](const uint32_t* word) { return __ldcg(word); });
}
__device__ inline int CountOf(const JobList& list) { return __ldcg(list.count); }

}  // namespace tp2::cuda
