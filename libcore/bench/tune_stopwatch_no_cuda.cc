// Stands in for tune_stopwatch_cuda.cc in builds without the CUDA toolkit.
#include "libcore/bench/tune_stopwatch.h"
#include "libcore/drafter/cuda_drafter.h"

namespace tp2::bench {

absl::StatusOr<std::unique_ptr<tuning::Stopwatch>> MakeProductStopwatch(
    const DrafterConfig& config, const std::string& device_uuid,
    std::vector<tuning::ProductLaunch> launches) {
  return FindCudaDevices({device_uuid}, 1);
}

absl::StatusOr<std::unique_ptr<tuning::Stopwatch>> MakeReduceStopwatch(
    const std::vector<std::string>& device_uuids, int64_t max_words) {
  return FindCudaDevices(device_uuids, 2);
}

}  // namespace tp2::bench
