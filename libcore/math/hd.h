// Markers for code that runs on the host and on the device. Nothing else lives here.
#pragma once

#ifdef __CUDACC__
#define TP2_HD __host__ __device__
#else
#define TP2_HD
#endif

// Before a loop whose trips are known at compile time: arrays that it indexes stay in registers.
#ifdef __CUDA_ARCH__
#define TP2_UNROLL _Pragma("unroll")
#else
#define TP2_UNROLL
#endif
