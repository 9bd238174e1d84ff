// Markers for functions that run on the host and on the device. Nothing else lives here.
#pragma once

#ifdef __CUDACC__
#define TP2_HD __host__ __device__
#else
#define TP2_HD
#endif
