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
  int64_t max_positions = kDefaultModelLength;
  int thread_count = 0;
  // Overrides the checkpoint's switch.
  std::optional<KvFakeQuant> kv_fake_quant = std::nullopt;
};

// True when every product is one set of bits on every backend (exl3/linear.h).
bool HasPortableBits(const DrafterWeights& weights);

// Ops is CpuOps<Bf16> in the product; CpuOps<float> leaves out the storage roundings (tests against
// the unrounded reference). Other instantiations include cpu_drafter-inl.h.
template <class Ops>
std::unique_ptr<Drafter<Ops>> MakeCpuDrafter(std::unique_ptr<Checkpoint> checkpoint,
                                             std::span<const ShardPlan> plans,
                                             const CpuDrafterOptions& options);

}  // namespace tp2
