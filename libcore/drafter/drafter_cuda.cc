// The only instantiation of the controller over the CUDA op set of one card.
#include <utility>

#include "libcore/base/status_macros.h"
#include "libcore/device/select.h"
#include "libcore/drafter/cpu_drafter.h"
#include "libcore/drafter/cuda_drafter.h"
#include "libcore/drafter/cuda_parts.h"
#include "libcore/drafter/drafter-inl.h"
#include "libcore/math/numerics.h"
#include "libcore/ops/cuda/cuda_ops.h"

namespace tp2 {

EngineInfo CudaInfo(const Checkpoint& checkpoint, std::span<const ShardPlan> plans,
                    const CudaDrafterOptions& options, std::span<const device::DeviceInfo> cards) {
  EngineInfo info;
  info.config = checkpoint.config();
  info.max_positions = options.max_positions;
  info.identity_digest = checkpoint.IdentityDigest();
  info.numerics_version = kNumericsVersion;
  info.portable_bits = HasPortableBits(checkpoint.weights());
  info.tp = plans.front().tp;
  info.mode = options.mode;
  info.backend = "cuda";
  for (const device::DeviceInfo& card : cards) {
    info.device_names.push_back(card.name + " " + card.uuid);
  }
  return info;
}

absl::StatusOr<std::vector<device::DeviceInfo>> SelectCards(const CudaDrafterOptions& options,
                                                            int count) {
  TP2_ASSIGN_OR_RETURN(std::vector<device::DeviceInfo> cards,
                       device::SelectDevices(options.device_uuids, count));
  if (options.kernels == nullptr) return cards;
  for (const device::DeviceInfo& card : cards) {
    TP2_RETURN_IF_ERROR(tuning::CheckCard(options.kernels->table(),
                                          {card.name, card.capability, card.multiprocessors}));
  }
  return cards;
}

absl::Status FindCudaDevices(const std::vector<std::string>& device_uuids, int count) {
  return device::SelectDevices(device_uuids, count).status();
}

absl::StatusOr<CudaParts> MakeCudaParts(const Checkpoint& checkpoint,
                                        std::span<const ShardPlan> plans,
                                        const CudaDrafterOptions& options) {
  TP2_ASSIGN_OR_RETURN(const std::vector<device::DeviceInfo> cards, SelectCards(options, 1));
  CudaParts parts;
  parts.info = CudaInfo(checkpoint, plans, options, cards);
  TP2_ASSIGN_OR_RETURN(parts.ops, CudaOps::Create(parts.info.config, parts.info.tp,
                                                  options.max_positions, cards.front()));
  parts.ops->set_uses_graphs(options.uses_graphs);
  parts.ops->set_kernels(options.kernels);
  parts.ops->set_joins_products(options.joins_products);
  parts.ops->set_stands_in(options.collective == Collective::kStandIn);
  return parts;
}

absl::StatusOr<std::unique_ptr<StepEngine>> MakeCudaDrafter(std::unique_ptr<Checkpoint> checkpoint,
                                                            std::span<const ShardPlan> plans,
                                                            const CudaDrafterOptions& options) {
  if (options.collective == Collective::kPair) {
    return MakeCudaPairDrafter(std::move(checkpoint), plans, options);
  }
  TP2_ASSIGN_OR_RETURN(CudaParts parts, MakeCudaParts(*checkpoint, plans, options));
  const CudaOps& setup = *parts.ops;
  return MakeRecordedDrafter(std::move(parts.info), std::move(checkpoint), std::move(parts.ops),
                             plans, setup);
}

}  // namespace tp2
