// The only instantiation of the controller over two cards.
#include <utility>

#include "libcore/base/status_macros.h"
#include "libcore/device/select.h"
#include "libcore/drafter/cuda_pair_ops.h"
#include "libcore/drafter/cuda_parts.h"
#include "libcore/drafter/drafter-inl.h"

namespace tp2 {
namespace {

coll::ProtocolKind ProtocolOf(const CudaDrafterOptions& options) {
  if (options.kernels == nullptr) return coll::ProtocolKind::kLine;
  const bool is_ack = options.kernels->protocol() == tuning::PairProtocol::kAck;
  return is_ack ? coll::ProtocolKind::kAck : coll::ProtocolKind::kLine;
}

}  // namespace

absl::StatusOr<CudaPairParts> MakeCudaPairParts(const Checkpoint& checkpoint,
                                                std::span<const ShardPlan> plans,
                                                const CudaDrafterOptions& options) {
  TP2_ASSIGN_OR_RETURN(const std::vector<device::DeviceInfo> cards, SelectCards(options, 2));
  CudaPairParts parts;
  parts.info = CudaInfo(checkpoint, plans, options, cards);
  TP2_ASSIGN_OR_RETURN(parts.ops, CudaPairOps::Create(parts.info.config, options.max_positions,
                                                      {.cards = cards,
                                                       .protocol = ProtocolOf(options),
                                                       .timeout_ms = options.timeout_ms,
                                                       .kernels = options.kernels}));
  parts.ops->set_uses_graphs(options.uses_graphs);
  parts.ops->set_joins_products(options.joins_products);
  return parts;
}

absl::StatusOr<std::unique_ptr<StepEngine>> MakeCudaPairDrafter(
    std::unique_ptr<Checkpoint> checkpoint, std::span<const ShardPlan> plans,
    const CudaDrafterOptions& options) {
  TP2_ASSIGN_OR_RETURN(CudaPairParts parts, MakeCudaPairParts(*checkpoint, plans, options));
  const CudaPairOps& setup = *parts.ops;
  return MakeRecordedDrafter(std::move(parts.info), std::move(checkpoint), std::move(parts.ops),
                             plans, setup);
}

}  // namespace tp2
