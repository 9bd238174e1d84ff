// The exact integer product for trellis widths 1 and 2.
#include "libcore/ops/cuda/integer_gemm.cuh"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/list_gemm.cuh"
#include "libcore/ops/cuda/preload.cuh"

namespace tp2::cuda {

void LaunchIntegerGemm12(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                         const Queue& queue) {
  if (bits == 1) {
    LaunchIntegerGemmOf<1>(jobs, work, splits, queue);
  } else {
    LaunchIntegerGemmOf<2>(jobs, work, splits, queue);
  }
}

void LaunchListGemm12(int bits, const LinearJobs& jobs, const LinearWorkspace& work,
                      int multiprocessors, const Queue& queue) {
  if (bits == 1) {
    LaunchListGemmOf<1>(jobs, work, multiprocessors, queue);
  } else {
    LaunchListGemmOf<2>(jobs, work, multiprocessors, queue);
  }
}

cudaError_t PreloadIntegerGemm12() {
#define TP2_INTEGER_GEMM_12
#include "libcore/ops/cuda/kernel_list.inc"
  if (const cudaError_t error = PreloadIntegerGemmOf<1>(); error != cudaSuccess) return error;
  return PreloadIntegerGemmOf<2>();
}

}  // namespace tp2::cuda
