#include "libcore/drafter/cpu_drafter-inl.h"
#include "libcore/exl3/linear.h"

namespace tp2 {
namespace {

bool AllPortable(const ExpertWeights& expert) {
  return exl3::HasPortableBits(expert.w1) && exl3::HasPortableBits(expert.w2) &&
         exl3::HasPortableBits(expert.w3);
}

}  // namespace

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

template std::unique_ptr<Drafter<CpuOps<Bf16>>> MakeCpuDrafter(std::unique_ptr<Checkpoint>,
                                                               std::span<const ShardPlan>,
                                                               const CpuDrafterOptions&);
template std::unique_ptr<Drafter<CpuOps<float>>> MakeCpuDrafter(std::unique_ptr<Checkpoint>,
                                                                std::span<const ShardPlan>,
                                                                const CpuDrafterOptions&);

}  // namespace tp2
