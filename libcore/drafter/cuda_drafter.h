// The drafter over the CUDA op set. Built twice: drafter_cuda.cc with the CUDA toolkit,
// drafter_no_cuda.cc without it, so that callers need no conditional code.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/drafter/modes.h"
#include "libcore/drafter/step_engine.h"
#include "libcore/shard/shard_plan.h"
#include "libcore/tuning/kernel_choices.h"

namespace tp2 {

struct CudaDrafterOptions {
  std::string mode = "one-card";
  int64_t max_positions = kDefaultModelLength;
  // By rank; empty: the first usable ones. Only a pair needs two.
  std::vector<std::string> device_uuids = {};
  bool uses_graphs = true;
  Collective collective = Collective::kReference;
  int64_t timeout_ms = 2000;                                 // longest wait of a pair's collective
  std::shared_ptr<tuning::KernelChoices> kernels = nullptr;  // null: safe defaults
  bool joins_products = true;
};

// Ok when `count` usable cards exist. Errors: kUnavailable with the reason, also in a build without
// CUDA.
absl::Status FindCudaDevices(const std::vector<std::string>& device_uuids, int count);

// A pair's ranks on two cards, all other modes' on one. Errors: as FindCudaDevices; kUnavailable
// when two cards cannot be a pair; kResourceExhausted when a card is too small; kAborted for device
// faults.
absl::StatusOr<std::unique_ptr<StepEngine>> MakeCudaDrafter(std::unique_ptr<Checkpoint> checkpoint,
                                                            std::span<const ShardPlan> plans,
                                                            const CudaDrafterOptions& options);

}  // namespace tp2
