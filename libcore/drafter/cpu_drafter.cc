#include "libcore/drafter/cpu_drafter.h"

#include <utility>

#include "libcore/drafter/drafter-inl.h"
#include "libcore/exl3/linear.h"
#include "libcore/math/numerics.h"

namespace tp2 {
namespace {

bool AllPortable(const ExpertWeights& expert) {
  return exl3::HasPortableBits(expert.w1) && exl3::HasPortableBits(expert.w2) &&
         exl3::HasPortableBits(expert.w3);
}

bool HasPortableBits(const DrafterWeights& weights) {
  bool portable = exl3::HasPortableBits(weights.head) && exl3::HasPortableBits(weights.main_proj);
  for (const StageWeights& stage : weights.stages) {
    for (const exl3::MatrixView* matrix : {&stage.wq_a, &stage.wq_b, &stage.wkv, &stage.wo_b}) {
      portable = portable && exl3::HasPortableBits(*matrix);
    }
    for (const exl3::MatrixView& slice : stage.wo_a.slices) {
      portable = portable && exl3::HasPortableBits(slice);
    }
    for (const ExpertWeights& expert : stage.experts) portable = portable && AllPortable(expert);
    portable = portable && AllPortable(stage.shared);
  }
  return portable;
}

}  // namespace

template <class S>
std::unique_ptr<Drafter<CpuOps<S>>> MakeCpuDrafter(std::unique_ptr<Checkpoint> checkpoint,
                                                   std::span<const ShardPlan> plans,
                                                   const CpuDrafterOptions& options) {
  EngineInfo info;
  info.config = checkpoint->config();
  info.config.kv_fake_quant = options.kv_fake_quant.value_or(info.config.kv_fake_quant);
  info.max_positions = options.max_positions;
  info.identity_digest = checkpoint->IdentityDigest();
  info.numerics_version = kNumericsVersion;
  info.portable_bits = HasPortableBits(checkpoint->weights());
  info.tp = static_cast<int>(plans.size());
  info.mode = options.mode;
  info.backend = "cpu";
  auto ops = std::make_unique<CpuOps<S>>(info.config, info.tp, options.thread_count);
  return std::make_unique<Drafter<CpuOps<S>>>(std::move(info), std::move(checkpoint),
                                              std::move(ops), plans);
}

template std::unique_ptr<Drafter<CpuOps<Bf16>>> MakeCpuDrafter<Bf16>(std::unique_ptr<Checkpoint>,
                                                                     std::span<const ShardPlan>,
                                                                     const CpuDrafterOptions&);
template std::unique_ptr<Drafter<CpuOps<float>>> MakeCpuDrafter<float>(std::unique_ptr<Checkpoint>,
                                                                       std::span<const ShardPlan>,
                                                                       const CpuDrafterOptions&);

}  // namespace tp2
