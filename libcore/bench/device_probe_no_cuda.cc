// Stands in for device_probe_cuda.cc in builds without the CUDA toolkit.
#include "libcore/bench/device_probe.h"
#include "libcore/drafter/cuda_drafter.h"

namespace tp2::bench {

absl::StatusOr<std::unique_ptr<DeviceProbe>> MakeCudaProbe(const std::string& device_uuid) {
  return FindCudaDevice(device_uuid);
}

absl::StatusOr<std::vector<CardFacts>> ListCards() { return FindCudaDevice(""); }

}  // namespace tp2::bench
