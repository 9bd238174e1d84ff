#include "libcore/device/stream.h"

#include "libcore/base/status_macros.h"
#include "libcore/device/capture_guard.h"
#include "libcore/device/cuda_status.h"

namespace tp2::device {

absl::StatusOr<Stream> Stream::Create(Kind kind) {
  Stream stream;
  const unsigned int flags = kind == Kind::kWork ? cudaStreamNonBlocking : cudaStreamDefault;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaStreamCreateWithFlags(&stream.stream_, flags)));
  return stream;
}

Stream::~Stream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::Status Stream::Synchronize() const {
  TP2_RETURN_IF_ERROR(CheckNotCapturing("a wait for a stream"));
  return TP2_CUDA(cudaStreamSynchronize(stream_));
}

}  // namespace tp2::device
