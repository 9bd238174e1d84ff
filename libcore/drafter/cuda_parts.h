// What a drafter over the CUDA op set is made of: for tools that put an op set of their own around
// it. Only in builds with the CUDA toolkit.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/base/status_macros.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/device/select.h"
#include "libcore/drafter/cuda_drafter.h"
#include "libcore/drafter/cuda_pair_ops.h"
#include "libcore/drafter/drafter.h"
#include "libcore/drafter/step_engine.h"
#include "libcore/ops/cuda/cuda_ops.h"
#include "libcore/shard/shard_plan.h"

namespace tp2 {

struct CudaParts {
  EngineInfo info;
  std::unique_ptr<CudaOps> ops;  // without weights; its setup_status tells later failures
};

struct CudaPairParts {
  EngineInfo info;
  std::unique_ptr<CudaPairOps> ops;
};

// What a drafter on `cards` tells about itself.
EngineInfo CudaInfo(const Checkpoint& checkpoint, std::span<const ShardPlan> plans,
                    const CudaDrafterOptions& options, std::span<const device::DeviceInfo> cards);
// The `count` cards that the options ask for. Errors: FindCudaDevices's; kUnavailable when they are
// of another kind than the kernel table chooses for.
absl::StatusOr<std::vector<device::DeviceInfo>> SelectCards(const CudaDrafterOptions& options,
                                                            int count);

// Errors: SelectCards's; kResourceExhausted, kAborted.
absl::StatusOr<CudaParts> MakeCudaParts(const Checkpoint& checkpoint,
                                        std::span<const ShardPlan> plans,
                                        const CudaDrafterOptions& options);
absl::StatusOr<CudaPairParts> MakeCudaPairParts(const Checkpoint& checkpoint,
                                                std::span<const ShardPlan> plans,
                                                const CudaDrafterOptions& options);

// MakeCudaDrafter on two cards.
absl::StatusOr<std::unique_ptr<StepEngine>> MakeCudaPairDrafter(
    std::unique_ptr<Checkpoint> checkpoint, std::span<const ShardPlan> plans,
    const CudaDrafterOptions& options);

// The drafter over parts whose op set is `Ops`, perhaps around `setup`, with every graph key
// recorded. For sources that include drafter-inl.h. Errors: setup's setup_status; Record's.
template <class Ops, class Setup>
absl::StatusOr<std::unique_ptr<Drafter<Ops>>> MakeRecordedDrafter(
    EngineInfo info, std::unique_ptr<Checkpoint> checkpoint, std::unique_ptr<Ops> ops,
    std::span<const ShardPlan> plans, const Setup& setup) {
  auto drafter =
      std::make_unique<Drafter<Ops>>(std::move(info), std::move(checkpoint), std::move(ops), plans);
  TP2_RETURN_IF_ERROR(setup.setup_status());
  const absl::Status recorded = drafter->Record();
  TP2_RETURN_IF_ERROR(setup.setup_status());
  TP2_RETURN_IF_ERROR(recorded);
  return drafter;
}

}  // namespace tp2
