// Body of MakeCpuDrafter.
#pragma once

#include <utility>

#include "libcore/drafter/cpu_drafter.h"
#include "libcore/drafter/drafter-inl.h"
#include "libcore/math/numerics.h"

namespace tp2 {

inline EngineInfo CpuEngineInfo(const Checkpoint& checkpoint, std::span<const ShardPlan> plans,
                                const CpuDrafterOptions& options) {
  EngineInfo info;
  info.config = checkpoint.config();
  info.config.kv_fake_quant = options.kv_fake_quant.value_or(info.config.kv_fake_quant);
  info.max_positions = options.max_positions;
  info.identity_digest = checkpoint.IdentityDigest();
  info.numerics_version = kNumericsVersion;
  info.portable_bits = HasPortableBits(checkpoint.weights());
  info.tp = plans.front().tp;
  info.mode = options.mode;
  info.backend = "cpu";
  return info;
}

template <class Ops>
std::unique_ptr<Drafter<Ops>> MakeCpuDrafter(std::unique_ptr<Checkpoint> checkpoint,
                                             std::span<const ShardPlan> plans,
                                             const CpuDrafterOptions& options) {
  EngineInfo info = CpuEngineInfo(*checkpoint, plans, options);
  auto ops = std::make_unique<Ops>(info.config, info.tp, options.thread_count);
  return std::make_unique<Drafter<Ops>>(std::move(info), std::move(checkpoint), std::move(ops),
                                        plans);
}

}  // namespace tp2
