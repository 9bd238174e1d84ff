// The drafter over the CPU op set.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "libcore/checkpoint/loader.h"
#include "libcore/drafter/drafter.h"
#include "libcore/ops/cpu/cpu_ops.h"
#include "libcore/shard/shard_plan.h"

namespace tp2 {

struct CpuDrafterOptions {
  std::string mode = "one-card";
  int64_t max_positions = 327680;
  int thread_count = 0;
  std::optional<KvFakeQuant> kv_fake_quant = std::nullopt;  // overrides the checkpoint's switch
};

// S is Bf16 in the product; float leaves out the storage roundings (tests against the unrounded
// reference).
template <class S>
std::unique_ptr<Drafter<CpuOps<S>>> MakeCpuDrafter(std::unique_ptr<Checkpoint> checkpoint,
                                                   std::span<const ShardPlan> plans,
                                                   const CpuDrafterOptions& options);

}  // namespace tp2
