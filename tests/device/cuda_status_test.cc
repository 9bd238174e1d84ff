// What a CUDA error becomes; needs the toolkit, no card.
#include "libcore/device/cuda_status.h"

#include <gtest/gtest.h>

#include "libcore/device/capture_guard.h"
#include "libcore/report/exit_code.h"

namespace tp2::device {
namespace {

absl::StatusCode CodeOf(cudaError_t error) { return ToStatus(error, "call").code(); }

TEST(CudaStatus, SuccessIsOk) { EXPECT_TRUE(ToStatus(cudaSuccess, "call").ok()); }

TEST(CudaStatus, DeviceFaultsAreAbortedAndEndATool) {
  for (const cudaError_t error :
       {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorLaunchTimeout, cudaErrorAssert,
        cudaErrorECCUncorrectable, cudaErrorHardwareStackError, cudaErrorIllegalInstruction,
        cudaErrorMisalignedAddress, cudaErrorNvlinkUncorrectable, cudaErrorUnknown}) {
    EXPECT_EQ(CodeOf(error), absl::StatusCode::kAborted) << cudaGetErrorName(error);
    EXPECT_EQ(ExitCodeOf(ToStatus(error, "call")), kExitDevice) << cudaGetErrorName(error);
  }
}

TEST(CudaStatus, NoCardAndNoMemoryAreTheEnvironment) {
  EXPECT_EQ(CodeOf(cudaErrorMemoryAllocation), absl::StatusCode::kResourceExhausted);
  for (const cudaError_t error : {cudaErrorNoDevice, cudaErrorInsufficientDriver,
                                  cudaErrorDevicesUnavailable, cudaErrorNoKernelImageForDevice}) {
    EXPECT_EQ(CodeOf(error), absl::StatusCode::kUnavailable) << cudaGetErrorName(error);
    EXPECT_EQ(ExitCodeOf(ToStatus(error, "call")), kExitEnvironment) << cudaGetErrorName(error);
  }
}

TEST(CudaStatus, ABrokenCaptureIsOurBug) {
  EXPECT_EQ(CodeOf(cudaErrorStreamCaptureImplicit), absl::StatusCode::kInternal);
  EXPECT_EQ(CodeOf(cudaErrorStreamCaptureInvalidated), absl::StatusCode::kInternal);
}

TEST(CudaStatus, TheMessageNamesTheCallAndTheError) {
  EXPECT_EQ(ToStatus(cudaErrorIllegalAddress, "launch of attention").message(),
            "launch of attention: expected success, got cudaErrorIllegalAddress (an illegal memory "
            "access was encountered)");
}

TEST(CaptureGuard, RefusesWhileOneIsInForce) {
  EXPECT_TRUE(CheckNotCapturing("a wait").ok());
  {
    const CaptureGuard guard;
    EXPECT_EQ(CheckNotCapturing("a wait").code(), absl::StatusCode::kInternal);
  }
  EXPECT_TRUE(CheckNotCapturing("a wait").ok());
}

}  // namespace
}  // namespace tp2::device
