// The drafter over the CUDA op set. Built twice: drafter_cuda.cc with the CUDA toolkit,
// drafter_no_cuda.cc without it, so that callers need no conditional code.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/drafter/step_engine.h"
#include "libcore/shard/shard_plan.h"

namespace tp2 {

struct CudaDrafterOptions {
  std::string mode = "one-card";
  int64_t max_positions = kDefaultModelLength;
  std::string device_uuid = {};  // empty: the first usable card
  bool uses_graphs = true;
  bool stands_in = false;  // one rank of two alone: see solo_ops.h
};

// Ok when a usable card exists. Errors: kUnavailable with the reason, also in a build without CUDA.
absl::Status FindCudaDevice(const std::string& device_uuid);

// All ranks on one card. Errors: as FindCudaDevice; kResourceExhausted when the card is too small;
// kAborted for device faults.
absl::StatusOr<std::unique_ptr<StepEngine>> MakeCudaDrafter(std::unique_ptr<Checkpoint> checkpoint,
                                                            std::span<const ShardPlan> plans,
                                                            const CudaDrafterOptions& options);

}  // namespace tp2
