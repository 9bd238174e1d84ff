// The debug oracle of the all-reduce: device copies ordered by explicit events, then one fp32
// addition in rank order. Eager only; uses no flags and no stores to a peer. Pairs only.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/collectives/cuda/launch.h"
#include "libcore/device/buffer.h"

namespace tp2::coll {

class ReferenceReduce {
 public:
  static absl::StatusOr<ReferenceReduce> Create(std::array<int, 2> ordinals, int64_t max_words);
  ~ReferenceReduce();
  ReferenceReduce(ReferenceReduce&& other) noexcept;
  ReferenceReduce& operator=(ReferenceReduce&&) = delete;

  // Enqueues both ranks' parts: what each stream holds before is the producer of its `x`. Outputs
  // may not be inputs.
  absl::Status Enqueue(const cuda::ReduceArgs (&args)[2], const cudaStream_t (&streams)[2]);

 private:
  ReferenceReduce() = default;

  std::array<int, 2> ordinals_ = {};
  std::array<device::Buffer<float>, 2> received_;  // [max_words] of the other rank's values
  std::array<cudaEvent_t, 2> produced_ = {};
  std::array<cudaEvent_t, 2> copied_ = {};
};

}  // namespace tp2::coll
