// What an entry of kernel_list.inc means inside a Preload function: load the kernel now.
#pragma once

#include <cuda_runtime_api.h>

#define TP2_KERNEL(...)                                                                  \
  if (cudaFuncAttributes attributes; true) {                                             \
    const cudaError_t error =                                                            \
        cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&__VA_ARGS__)); \
    if (error != cudaSuccess) return error;                                              \
  }
