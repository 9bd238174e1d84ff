#include "libcore/collectives/cuda/reference.h"

#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/status_macros.h"
#include "libcore/collectives/cuda/harness.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/device_guard.h"

namespace tp2::coll {

absl::StatusOr<ReferenceReduce> ReferenceReduce::Create(std::array<int, 2> ordinals,
                                                        int64_t max_words) {
  ReferenceReduce reduce;
  reduce.ordinals_ = ordinals;
  for (int rank = 0; rank < 2; ++rank) {
    const device::DeviceGuard guard(ordinals[rank]);
    TP2_ASSIGN_OR_RETURN(reduce.received_[rank], device::Buffer<float>::Create(max_words));
    TP2_RETURN_IF_ERROR(
        TP2_CUDA(cudaEventCreateWithFlags(&reduce.produced_[rank], cudaEventDisableTiming)));
    TP2_RETURN_IF_ERROR(
        TP2_CUDA(cudaEventCreateWithFlags(&reduce.copied_[rank], cudaEventDisableTiming)));
  }
  return reduce;
}

ReferenceReduce::ReferenceReduce(ReferenceReduce&& other) noexcept
    : ordinals_(other.ordinals_),
      received_(std::move(other.received_)),
      produced_(std::exchange(other.produced_, {})),
      copied_(std::exchange(other.copied_, {})) {}

ReferenceReduce::~ReferenceReduce() {
  for (int rank = 0; rank < 2; ++rank) {
    if (produced_[rank] != nullptr) cudaEventDestroy(produced_[rank]);
    if (copied_[rank] != nullptr) cudaEventDestroy(copied_[rank]);
  }
}

absl::Status ReferenceReduce::Enqueue(const cuda::ReduceArgs (&args)[2],
                                      const cudaStream_t (&streams)[2]) {
  TP2_CHECK(args[0].count == args[1].count);
  TP2_CHECK(static_cast<size_t>(args[0].count) <= received_[0].size());
  for (int rank = 0; rank < 2; ++rank) {
    const device::DeviceGuard guard(ordinals_[rank]);
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventRecord(produced_[rank], streams[rank])));
  }
  for (int rank = 0; rank < 2; ++rank) {
    const int peer = 1 - rank;
    const device::DeviceGuard guard(ordinals_[rank]);
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaStreamWaitEvent(streams[rank], produced_[peer], 0)));
    TP2_RETURN_IF_ERROR(TP2_CUDA(
        cudaMemcpyPeerAsync(received_[rank].data(), ordinals_[rank], args[peer].x, ordinals_[peer],
                            static_cast<size_t>(args[peer].count) * sizeof(float), streams[rank])));
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventRecord(copied_[rank], streams[rank])));
    // BITS: rank 0's values first.
    const float* own = args[rank].x;
    const float* other = received_[rank].data();
    cuda::LaunchAdd(rank == 0 ? own : other, rank == 0 ? other : own, args[rank].count,
                    args[rank].sum, args[rank].rounded, streams[rank]);
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaPeekAtLastError()));
  }
  // Neither rank may overwrite its values before the other has copied them.
  for (int rank = 0; rank < 2; ++rank) {
    const device::DeviceGuard guard(ordinals_[rank]);
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaStreamWaitEvent(streams[rank], copied_[1 - rank], 0)));
  }
  return absl::OkStatus();
}

}  // namespace tp2::coll
