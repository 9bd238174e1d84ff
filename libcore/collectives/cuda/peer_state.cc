#include "libcore/collectives/cuda/peer_state.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "libcore/base/status_macros.h"
#include "libcore/device/capture_guard.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/device_guard.h"
#include "libcore/device/peer.h"

namespace tp2::coll {

absl::StatusOr<PeerState> PeerState::Create(int ordinal, int64_t byte_count) {
  TP2_RETURN_IF_ERROR(device::CheckNotCapturing("cudaMalloc of peer state"));
  const device::DeviceGuard guard(ordinal);
  const auto bytes = static_cast<size_t>(byte_count);
  PeerState state;
  state.ordinal_ = ordinal;
  void* data = nullptr;
  TP2_RETURN_IF_ERROR(
      device::ToStatus(cudaMalloc(&data, bytes), absl::StrCat("cudaMalloc of ", bytes, " bytes")));
  state.data_ = static_cast<uint8_t*>(data);
  TP2_RETURN_IF_ERROR(device::CheckPeerMemory(data, bytes, ordinal));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMemset(data, 0, bytes)));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaStreamSynchronize(cudaStreamLegacy)));
  return state;
}

PeerState::~PeerState() {
  if (data_ == nullptr) return;
  const device::DeviceGuard guard(ordinal_);
  cudaFree(data_);
}

}  // namespace tp2::coll
