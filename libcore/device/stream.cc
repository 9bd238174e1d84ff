#include "libcore/device/stream.h"

#include "libcore/base/status_macros.h"
#include "libcore/device/cuda_status.h"

namespace tp2::device {

absl::StatusOr<Stream> Stream::Create() {
  Stream stream;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking)));
  return stream;
}

Stream::~Stream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::Status Stream::Synchronize() const { return TP2_CUDA(cudaStreamSynchronize(stream_)); }

}  // namespace tp2::device
