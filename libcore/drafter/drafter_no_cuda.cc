// Stands in for drafter_cuda.cc in builds without the CUDA toolkit.
#include "libcore/base/error.h"
#include "libcore/drafter/cuda_drafter.h"

namespace tp2 {
namespace {

absl::Status NotBuilt() {
  return MakeError(absl::StatusCode::kUnavailable,
                   {.what = "no usable GPU",
                    .expected = "a build with the CUDA op set",
                    .got = "one without it",
                    .next = "use --backend cpu, or configure with -DTP2_CUDA=ON"});
}

}  // namespace

absl::Status FindCudaDevices(const std::vector<std::string>& device_uuids, int count) {
  return NotBuilt();
}

absl::StatusOr<std::unique_ptr<StepEngine>> MakeCudaDrafter(std::unique_ptr<Checkpoint> checkpoint,
                                                            std::span<const ShardPlan> plans,
                                                            const CudaDrafterOptions& options) {
  return NotBuilt();
}

}  // namespace tp2
