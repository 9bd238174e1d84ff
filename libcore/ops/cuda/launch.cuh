// Starting kernels one behind the other, and what a kernel does about the one in front of it.
//
// On sm_90 a kernel of a queue that overlaps starts when every block of its predecessor has passed
// AwaitPredecessor, so its launch and the loads of its weights cost no time of their own. Rules:
//  * every block of every kernel calls AwaitPredecessor, also one that has nothing to do: a kernel
//    that ended without it would let its successor see memory that is still being written;
//  * in front of that call a kernel reads weights, arguments, and results of the predecessor's
//    predecessor, which has ended by then; it writes nothing.
// Collectives and what follows them are launched without overlap.
#pragma once

#include <cuda_runtime_api.h>

#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/ptx.cuh"

namespace tp2::cuda {

template <class... Parameters, class... Arguments>
void Launch(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, unsigned threads,
            size_t shared_bytes, const Arguments&... arguments) {
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = queue.stream;
  config.attrs = &overlap;
  config.numAttrs = queue.overlaps ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

}  // namespace tp2::cuda
