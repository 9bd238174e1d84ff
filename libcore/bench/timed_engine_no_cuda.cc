// Stands in for timed_engine_cuda.cc in builds without the CUDA toolkit.
#include "libcore/bench/timed_engine.h"
#include "libcore/drafter/cuda_drafter.h"

namespace tp2::bench {

absl::StatusOr<TimedEngine> MakeTimedCudaEngine(EngineParts parts, const EngineOptions& options) {
  return FindCudaDevices(options.device_uuids, 1);
}

}  // namespace tp2::bench
