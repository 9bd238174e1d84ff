// The exact integer product for trellis widths 3 and 4.
#include "libcore/ops/cuda/integer_gemm.cuh"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/list_gemm.cuh"
#include "libcore/ops/cuda/preload.cuh"

namespace tp2::cuda {

void LaunchIntegerGemm34(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                         const Queue& queue) {
  if (bits == 3) {
    LaunchIntegerGemmOf<3>(jobs, work, splits, queue);
  } else {
    LaunchIntegerGemmOf<4>(jobs, work, splits, queue);
  }
}

void LaunchListGemm34(int bits, const LinearJobs& jobs, const LinearWorkspace& work,
                      int multiprocessors, const Queue& queue) {
  if (bits == 3) {
    LaunchListGemmOf<3>(jobs, work, multiprocessors, queue);
  } else {
    LaunchListGemmOf<4>(jobs, work, multiprocessors, queue);
  }
}

cudaError_t PreloadIntegerGemm34() {
#define TP2_INTEGER_GEMM_34
#include "libcore/ops/cuda/kernel_list.inc"
  if (const cudaError_t error = PreloadIntegerGemmOf<3>(); error != cudaSuccess) return error;
  return PreloadIntegerGemmOf<4>();
}

}  // namespace tp2::cuda
