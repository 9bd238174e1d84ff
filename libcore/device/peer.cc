#include "libcore/device/peer.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/device_guard.h"
#include "libcore/device/driver_function.h"

namespace tp2::device {
namespace {

absl::Status Refuse(const std::string& got) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {.what = "peer state",
                    .expected = "memory of a plain cudaMalloc on its own card",
                    .got = got,
                    .next = "let the pair allocate its own state"});
}

// Only mapped memory has an allocation handle.
absl::StatusOr<bool> IsMapped(const void* data) {
  CUresult (*retain)(CUmemGenericAllocationHandle*, void*) = nullptr;
  CUresult (*release)(CUmemGenericAllocationHandle) = nullptr;
  TP2_RETURN_IF_ERROR(FindDriverFunction("cuMemRetainAllocationHandle", retain));
  TP2_RETURN_IF_ERROR(FindDriverFunction("cuMemRelease", release));
  CUmemGenericAllocationHandle handle;
  if (retain(&handle, const_cast<void*>(data)) != CUDA_SUCCESS) return false;
  release(handle);
  return true;
}

}  // namespace

absl::Status EnablePeerAccess(int ordinal, int peer) {
  if (ordinal == peer) return absl::OkStatus();
  TP2_RETURN_IF_ERROR(
      ToStatus(cudaPeekAtLastError(), "a CUDA call before peer access was enabled"));
  int can_access = 0;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaDeviceCanAccessPeer(&can_access, ordinal, peer)));
  if (can_access == 0) {
    return MakeError(absl::StatusCode::kUnavailable,
                     {.what = absl::StrCat("peer access of card ", ordinal, " to card ", peer),
                      .expected = "a peer path",
                      .got = "none",
                      .next = "use two cards on one NVLink bridge or switch, or --protocol nccl"});
  }
  const DeviceGuard guard(ordinal);
  const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error != cudaErrorPeerAccessAlreadyEnabled) {
    return ToStatus(error, "cudaDeviceEnablePeerAccess");
  }
  // Exactly this one error: nothing was pending before. Left behind, it would fail a later check.
  const cudaError_t consumed = cudaGetLastError();
  if (consumed == cudaErrorPeerAccessAlreadyEnabled || consumed == cudaSuccess) {
    return absl::OkStatus();
  }
  return ToStatus(consumed, "cudaDeviceEnablePeerAccess");
}

absl::Status CheckPeerMemory(const void* data, size_t bytes, int ordinal) {
  cudaPointerAttributes attributes;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaPointerGetAttributes(&attributes, data)));
  if (attributes.type == cudaMemoryTypeManaged) return Refuse("managed memory");
  if (attributes.type != cudaMemoryTypeDevice) return Refuse("host memory");
  if (attributes.device != ordinal) {
    return Refuse(absl::StrCat("memory of card ", attributes.device, " for card ", ordinal));
  }
  TP2_ASSIGN_OR_RETURN(const bool is_mapped, IsMapped(data));
  if (is_mapped) return Refuse("mapped (VMM, expandable segment) memory");
  CUresult (*get)(void*, CUpointer_attribute, CUdeviceptr) = nullptr;
  TP2_RETURN_IF_ERROR(FindDriverFunction("cuPointerGetAttribute", get));
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  CUmemoryPool pool = nullptr;
  if (get(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address) == CUDA_SUCCESS && pool != nullptr) {
    return Refuse("memory of a stream-ordered pool (cudaMallocAsync)");
  }
  CUdeviceptr start = 0;
  size_t extent_bytes = 0;
  if (get(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) != CUDA_SUCCESS ||
      get(&extent_bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) != CUDA_SUCCESS) {
    return Refuse("memory whose allocation the driver does not know");
  }
  if (start != address || extent_bytes < bytes) {
    return Refuse(absl::StrCat("a part of an allocation of ", extent_bytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace tp2::device
