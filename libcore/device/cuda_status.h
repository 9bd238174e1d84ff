// CUDA runtime errors as absl::Status. Only this file's callers see cudaError_t; the message names
// the call. Out of memory is kResourceExhausted, no usable driver or card kUnavailable, a broken
// graph capture kInternal, the rest kAborted: after a device fault only a new process heals.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"

namespace tp2::device {

// `call` is what failed, as text: "cudaMalloc of 4096 bytes".
absl::Status ToStatus(cudaError_t error, std::string_view call);

}  // namespace tp2::device

// The status of a CUDA runtime call.
#define TP2_CUDA(call) ::tp2::device::ToStatus((call), #call)
