// Kernels that wait for each other across cards would wait for ever where they run one by one.
#include "libcore/base/error.h"
#include "libcore/drafter/cuda_parts.h"

namespace tp2 {

absl::StatusOr<std::unique_ptr<StepEngine>> MakeCudaPairDrafter(std::unique_ptr<Checkpoint>,
                                                                std::span<const ShardPlan>,
                                                                const CudaDrafterOptions&) {
  return MakeError(absl::StatusCode::kUnavailable, {.what = "a pair",
                                                    .expected = "two cards",
                                                    .got = "the CPU as a card",
                                                    .next = "use mode emulated"});
}

}  // namespace tp2
