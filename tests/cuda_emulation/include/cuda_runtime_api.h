// The part of the CUDA runtime and of the device language that libcore/device and libcore/ops/cuda
// use, on the CPU: kernels are plain functions, a launch runs its blocks one after the other, and
// streams do at once what is enqueued. No bits differ from a card's; times mean nothing.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>

#include "tests/cuda_emulation/block_runner.h"

// Language.
#define __device__
#define __host__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// Blocks run one at a time, so a block's memory may be the program's.
#define __shared__ static

struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(16) longlong2 {
  long long x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};

// The indices of the thread that runs; BlockRunner sets them.
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

// Warp and block.
inline void __syncthreads() { tp2::cuda_emulation::SyncBlock(); }
inline void __syncwarp() { tp2::cuda_emulation::SyncWarp(); }
inline void __threadfence() {}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return tp2::cuda_emulation::FromLane(mask, value, lane % 32);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return tp2::cuda_emulation::FromLane(mask, value, static_cast<int>(threadIdx.x % 32) ^ distance);
}
template <class T>
T __reduce_max_sync(unsigned mask, T value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = std::max(value, __shfl_xor_sync(mask, value, distance));
  }
  return value;
}
template <class T>
T __reduce_min_sync(unsigned mask, T value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = std::min(value, __shfl_xor_sync(mask, value, distance));
  }
  return value;
}
template <class T>
T __reduce_add_sync(unsigned mask, T value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = static_cast<T>(static_cast<uint32_t>(value) +
                           static_cast<uint32_t>(__shfl_xor_sync(mask, value, distance)));
  }
  return value;
}

template <class T>
T atomicAdd(T* at, T value) {
  const T old = *at;
  *at = old + value;
  return old;
}
template <class T>
T atomicOr(T* at, T bits) {
  const T old = *at;
  *at = old | bits;
  return old;
}
template <class T>
T atomicMax(T* at, T value) {
  const T old = *at;
  *at = std::max(old, value);
  return old;
}

// Bits and conversions.
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xFF) << (8 * i);
  }
  return result;
}
inline uint32_t __dp4a(uint32_t a, uint32_t b, uint32_t sum) {
  for (int i = 0; i < 32; i += 8) sum += (a >> i & 0xFFu) * (b >> i & 0xFFu);
  return sum;
}
inline int __popc(uint32_t word) { return std::popcount(word); }
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) << (shift & 31) >> 32);
}
inline uint32_t __funnelshift_rc(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> std::min(shift, 32u));
}
template <class To, class From>
To BitsAs(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}
inline float __uint_as_float(uint32_t bits) { return BitsAs<float>(bits); }
inline float __int_as_float(int32_t bits) { return BitsAs<float>(bits); }
inline uint32_t __float_as_uint(float value) { return BitsAs<uint32_t>(value); }
inline float __ll2float_rn(long long value) { return static_cast<float>(value); }
inline int __float2int_rn(float value) {
  if (std::isnan(value)) return 0;
  return static_cast<int>(std::clamp<double>(std::nearbyint(value), INT32_MIN, INT32_MAX));
}
template <class T>
T __ldcg(const T* at) {
  return *at;
}
template <class T>
T __ldg(const T* at) {
  return *at;
}
using std::max;
using std::min;

// Runtime.
enum cudaError_t {
  cudaSuccess,
  cudaErrorMemoryAllocation,
  cudaErrorInvalidValue,
  cudaErrorNoDevice,
  cudaErrorInsufficientDriver,
  cudaErrorInitializationError,
  cudaErrorInvalidDevice,
  cudaErrorDevicesUnavailable,
  cudaErrorSystemNotReady,
  cudaErrorSystemDriverMismatch,
  cudaErrorNoKernelImageForDevice,
  cudaErrorStreamCaptureUnsupported,
  cudaErrorStreamCaptureInvalidated,
  cudaErrorStreamCaptureMerge,
  cudaErrorStreamCaptureUnmatched,
  cudaErrorStreamCaptureUnjoined,
  cudaErrorStreamCaptureIsolation,
  cudaErrorStreamCaptureImplicit,
  cudaErrorStreamCaptureWrongThread,
};
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }

struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  int major, minor, multiProcessorCount;
  size_t totalGlobalMem;
};
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDefault };
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
inline cudaError_t cudaMallocHost(void** memory, size_t bytes) { return cudaMalloc(memory, bytes); }
inline cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemset(void* memory, int value, size_t bytes);
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t row_bytes, size_t rows, cudaMemcpyKind kind);

using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
using cudaGraphNode_t = struct CUgraphNode_st*;
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
inline const cudaStream_t cudaStreamLegacy = reinterpret_cast<cudaStream_t>(1);
inline constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags);
inline cudaError_t cudaStreamGetDevice(cudaStream_t, int* device) { return cudaGetDevice(device); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);

cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);

enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
enum cudaGraphNodeType {
  cudaGraphNodeTypeKernel,
  cudaGraphNodeTypeMemcpy,
  cudaGraphNodeTypeMemset,
  cudaGraphNodeTypeEmpty,
  cudaGraphNodeTypeWaitEvent,
  cudaGraphNodeTypeEventRecord,
};
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count);
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);

struct cudaFuncAttributes {};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) { return cudaSuccess; }
// What an H200 holds of the kernel that is asked about, ListGemmKernel.
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int, size_t) {
  *blocks = 6;
  return cudaSuccess;
}
namespace tp2::cuda_emulation {
// Dynamic shared memory that a kernel may be launched with; a launch with more ends the program.
void AllowSharedBytes(const void* kernel, size_t bytes);
void CheckSharedBytes(const void* kernel, size_t bytes);
}  // namespace tp2::cuda_emulation
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel kernel, cudaFuncAttribute, size_t bytes) {
  tp2::cuda_emulation::AllowSharedBytes(reinterpret_cast<const void*>(kernel), bytes);
  return cudaSuccess;
}

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

namespace tp2::cuda_emulation {
void Enqueue(cudaStream_t stream, cudaGraphNodeType type, std::function<void()> work);
}  // namespace tp2::cuda_emulation

template <class... Parameters>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               std::type_identity_t<Parameters>... arguments) {
  tp2::cuda_emulation::CheckSharedBytes(reinterpret_cast<const void*>(kernel),
                                        config->dynamicSmemBytes);
  const tp2::cuda_emulation::Shape shape = {config->gridDim, config->blockDim,
                                            config->dynamicSmemBytes};
  tp2::cuda_emulation::Enqueue(
      config->stream, cudaGraphNodeTypeKernel,
      [shape, kernel, given = std::tuple<std::remove_const_t<Parameters>...>(arguments...)] {
        tp2::cuda_emulation::RunGrid(shape, [&] { std::apply(kernel, given); });
      });
  return cudaSuccess;
}
