// The exact integer product for trellis widths 7 and 8.
#include "libcore/ops/cuda/integer_gemm.cuh"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/list_gemm.cuh"
#include "libcore/ops/cuda/preload.cuh"

namespace tp2::cuda {

void LaunchIntegerGemm78(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                         const Queue& queue) {
  if (bits == 7) {
    LaunchIntegerGemmOf<7>(jobs, work, splits, queue);
  } else {
    LaunchIntegerGemmOf<8>(jobs, work, splits, queue);
  }
}

void LaunchListGemm78(int bits, const LinearJobs& jobs, const LinearWorkspace& work,
                      int multiprocessors, const Queue& queue) {
  if (bits == 7) {
    LaunchListGemmOf<7>(jobs, work, multiprocessors, queue);
  } else {
    LaunchListGemmOf<8>(jobs, work, multiprocessors, queue);
  }
}

cudaError_t PreloadIntegerGemm78() {
#define TP2_INTEGER_GEMM_78
#include "libcore/ops/cuda/kernel_list.inc"
  if (const cudaError_t error = PreloadIntegerGemmOf<7>(); error != cudaSuccess) return error;
  return PreloadIntegerGemmOf<8>();
}

}  // namespace tp2::cuda
