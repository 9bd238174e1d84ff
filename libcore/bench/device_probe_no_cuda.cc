// Stands in for device_probe_cuda.cc in builds without the CUDA toolkit.
#include "libcore/bench/device_probe.h"
#include "libcore/drafter/cuda_drafter.h"

namespace tp2::bench {

absl::StatusOr<std::unique_ptr<DeviceProbe>> MakeCudaProbe(const std::string& device_uuid) {
  return FindCudaDevices({device_uuid}, 1);
}

absl::StatusOr<std::vector<CardFacts>> SelectCards(const std::vector<std::string>& device_uuids,
                                                   int count) {
  return FindCudaDevices(device_uuids, count);
}

absl::StatusOr<std::vector<CardFacts>> ListCards() { return FindCudaDevices({}, 1); }

}  // namespace tp2::bench
