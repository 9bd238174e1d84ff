// Where kernels are launched to.
#pragma once

#include <cuda_runtime_api.h>

namespace tp2::device {

// `overlaps`: the next kernel may start while its predecessor still runs (overlap.cuh); sm_90 and
// later.
struct Queue {
  cudaStream_t stream = nullptr;
  bool overlaps = false;
};

}  // namespace tp2::device
