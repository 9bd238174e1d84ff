// A driver function without linking the driver: our binaries start on machines that have none.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/device/cuda_status.h"

namespace tp2::device {

// The oldest driver interface that the functions we call have.
inline constexpr unsigned int kDriverVersion = 12000;

// Errors: kUnavailable when the driver has no function of this name.
template <class Function>
absl::Status FindDriverFunction(const char* name, Function*& function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found;
  TP2_RETURN_IF_ERROR(TP2_CUDA(
      cudaGetDriverEntryPointByVersion(name, &address, kDriverVersion, cudaEnableDefault, &found)));
  if (found != cudaDriverEntryPointSuccess) {
    return MakeError(
        absl::StatusCode::kUnavailable,
        {.what = absl::StrCat("driver function ", name), .expected = "present", .got = "none"});
  }
  function = reinterpret_cast<Function*>(address);
  return absl::OkStatus();
}

}  // namespace tp2::device
