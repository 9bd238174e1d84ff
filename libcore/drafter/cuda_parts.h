// What a drafter over the CUDA op set is made of: for tools that put an op set of their own around
// it. Only in builds with the CUDA toolkit.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/drafter/cuda_drafter.h"
#include "libcore/drafter/step_engine.h"
#include "libcore/ops/cuda/cuda_ops.h"
#include "libcore/shard/shard_plan.h"

namespace tp2 {

struct CudaParts {
  EngineInfo info;
  std::unique_ptr<CudaOps> ops;  // without weights; its setup_status tells later failures
};

// Errors: FindCudaDevice's; kResourceExhausted, kAborted.
absl::StatusOr<CudaParts> MakeCudaParts(const Checkpoint& checkpoint,
                                        std::span<const ShardPlan> plans,
                                        const CudaDrafterOptions& options);

}  // namespace tp2
