// The only instantiations of the controller over the CUDA op sets.
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

namespace {

EngineInfo InfoOf(const Checkpoint& checkpoint, std::span<const ShardPlan> plans,
                  const CudaDrafterOptions& options, const std::vector<device::DeviceInfo>& cards) {
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

// A table chooses for one kind of card.
absl::Status CheckKernels(const CudaDrafterOptions& options,
                          const std::vector<device::DeviceInfo>& cards) {
  if (options.kernels == nullptr) return absl::OkStatus();
  for (const device::DeviceInfo& card : cards) {
    TP2_RETURN_IF_ERROR(tuning::CheckCard(options.kernels->table(),
                                          {card.name, card.capability, card.multiprocessors}));
  }
  return absl::OkStatus();
}

coll::ProtocolKind ProtocolOf(const CudaDrafterOptions& options) {
  if (options.kernels == nullptr) return coll::ProtocolKind::kLine;
  const bool is_ack = options.kernels->protocol() == tuning::PairProtocol::kAck;
  return is_ack ? coll::ProtocolKind::kAck : coll::ProtocolKind::kLine;
}

}  // namespace

absl::Status FindCudaDevices(const std::vector<std::string>& device_uuids, int count) {
  return device::SelectDevices(device_uuids, count).status();
}

absl::StatusOr<CudaParts> MakeCudaParts(const Checkpoint& checkpoint,
                                        std::span<const ShardPlan> plans,
                                        const CudaDrafterOptions& options) {
  TP2_ASSIGN_OR_RETURN(const std::vector<device::DeviceInfo> cards,
                       device::SelectDevices(options.device_uuids, 1));
  TP2_RETURN_IF_ERROR(CheckKernels(options, cards));
  CudaParts parts;
  parts.info = InfoOf(checkpoint, plans, options, cards);
  TP2_ASSIGN_OR_RETURN(parts.ops, CudaOps::Create(parts.info.config, parts.info.tp,
                                                  options.max_positions, cards.front()));
  parts.ops->set_uses_graphs(options.uses_graphs);
  parts.ops->set_kernels(options.kernels);
  parts.ops->set_joins_products(options.joins_products);
  parts.ops->set_stands_in(options.collective == Collective::kStandIn);
  return parts;
}

absl::StatusOr<CudaPairParts> MakeCudaPairParts(const Checkpoint& checkpoint,
                                                std::span<const ShardPlan> plans,
                                                const CudaDrafterOptions& options) {
  TP2_ASSIGN_OR_RETURN(const std::vector<device::DeviceInfo> cards,
                       device::SelectDevices(options.device_uuids, 2));
  TP2_RETURN_IF_ERROR(CheckKernels(options, cards));
  CudaPairParts parts;
  parts.info = InfoOf(checkpoint, plans, options, cards);
  TP2_ASSIGN_OR_RETURN(parts.ops, CudaPairOps::Create(parts.info.config, options.max_positions,
                                                      {.cards = cards,
                                                       .protocol = ProtocolOf(options),
                                                       .timeout_ms = options.timeout_ms,
                                                       .kernels = options.kernels}));
  parts.ops->set_uses_graphs(options.uses_graphs);
  parts.ops->set_joins_products(options.joins_products);
  return parts;
}

absl::StatusOr<std::unique_ptr<StepEngine>> MakeCudaDrafter(std::unique_ptr<Checkpoint> checkpoint,
                                                            std::span<const ShardPlan> plans,
                                                            const CudaDrafterOptions& options) {
  if (options.collective == Collective::kPair) {
    TP2_ASSIGN_OR_RETURN(CudaPairParts parts, MakeCudaPairParts(*checkpoint, plans, options));
    const CudaPairOps& setup = *parts.ops;
    return MakeRecordedDrafter(std::move(parts.info), std::move(checkpoint), std::move(parts.ops),
                               plans, setup);
  }
  TP2_ASSIGN_OR_RETURN(CudaParts parts, MakeCudaParts(*checkpoint, plans, options));
  const CudaOps& setup = *parts.ops;
  return MakeRecordedDrafter(std::move(parts.info), std::move(checkpoint), std::move(parts.ops),
                             plans, setup);
}

}  // namespace tp2
