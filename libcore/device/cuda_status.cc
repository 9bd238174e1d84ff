#include "libcore/device/cuda_status.h"

#include <string>

#include "libcore/base/error.h"

namespace tp2::device {
namespace {

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorNoKernelImageForDevice:
      return absl::StatusCode::kUnavailable;
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureWrongThread:
      return absl::StatusCode::kInternal;
    default:
      return absl::StatusCode::kAborted;
  }
}

}  // namespace

absl::Status ToStatus(cudaError_t error, std::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  return MakeError(CodeOf(error), {.what = std::string(call),
                                   .expected = "success",
                                   .got = std::string(cudaGetErrorName(error)) + " (" +
                                          cudaGetErrorString(error) + ")"});
}

}  // namespace tp2::device
