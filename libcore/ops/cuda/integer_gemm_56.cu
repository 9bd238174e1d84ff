// The exact integer product for trellis widths 5 and 6.
#include "libcore/ops/cuda/integer_gemm.cuh"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/list_gemm.cuh"
#include "libcore/ops/cuda/preload.cuh"

namespace tp2::cuda {

void LaunchIntegerGemm56(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                         const Queue& queue) {
  if (bits == 5) {
    LaunchIntegerGemmOf<5>(jobs, work, splits, queue);
  } else {
    LaunchIntegerGemmOf<6>(jobs, work, splits, queue);
  }
}

void LaunchListGemm56(int bits, const LinearJobs& jobs, const LinearWorkspace& work,
                      int multiprocessors, const Queue& queue) {
  if (bits == 5) {
    LaunchListGemmOf<5>(jobs, work, multiprocessors, queue);
  } else {
    LaunchListGemmOf<6>(jobs, work, multiprocessors, queue);
  }
}

cudaError_t PreloadIntegerGemm56() {
#define TP2_INTEGER_GEMM_56
#include "libcore/ops/cuda/kernel_list.inc"
  if (const cudaError_t error = PreloadIntegerGemmOf<5>(); error != cudaSuccess) return error;
  return PreloadIntegerGemmOf<6>();
}

}  // namespace tp2::cuda
