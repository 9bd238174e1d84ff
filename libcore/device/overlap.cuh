// Starting a kernel while the one in front of it in its stream still runs, and what a kernel does
// about that one. Below sm_90, and where the launch did not allow it, kernels follow each other and
// the call here does nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "libcore/device/queue.h"

namespace tp2::device {

// Waits for the kernel in front to end, and lets the one behind start.
__device__ inline void AwaitPredecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Errors are found by cudaPeekAtLastError.
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

}  // namespace tp2::device
