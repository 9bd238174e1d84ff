// The only instantiation of the controller over the CUDA op set.
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

absl::Status FindCudaDevice(const std::string& device_uuid) {
  return device::SelectDevice(device_uuid).status();
}

absl::StatusOr<CudaParts> MakeCudaParts(const Checkpoint& checkpoint,
                                        std::span<const ShardPlan> plans,
                                        const CudaDrafterOptions& options) {
  TP2_ASSIGN_OR_RETURN(const device::DeviceInfo device, device::SelectDevice(options.device_uuid));
  CudaParts parts;
  EngineInfo& info = parts.info;
  info.config = checkpoint.config();
  info.max_positions = options.max_positions;
  info.identity_digest = checkpoint.IdentityDigest();
  info.numerics_version = kNumericsVersion;
  info.portable_bits = HasPortableBits(checkpoint.weights());
  info.tp = plans.front().tp;
  info.mode = options.mode;
  info.backend = "cuda";
  info.device_names = {device.name + " " + device.uuid};
  TP2_ASSIGN_OR_RETURN(parts.ops,
                       CudaOps::Create(info.config, info.tp, info.max_positions, device));
  parts.ops->set_uses_graphs(options.uses_graphs);
  parts.ops->set_stands_in(options.stands_in);
  return parts;
}

absl::StatusOr<std::unique_ptr<StepEngine>> MakeCudaDrafter(std::unique_ptr<Checkpoint> checkpoint,
                                                            std::span<const ShardPlan> plans,
                                                            const CudaDrafterOptions& options) {
  TP2_ASSIGN_OR_RETURN(CudaParts parts, MakeCudaParts(*checkpoint, plans, options));
  CudaOps& setup = *parts.ops;
  auto drafter = std::make_unique<Drafter<CudaOps>>(std::move(parts.info), std::move(checkpoint),
                                                    std::move(parts.ops), plans);
  TP2_RETURN_IF_ERROR(setup.setup_status());
  const absl::Status recorded = drafter->Record();
  TP2_RETURN_IF_ERROR(setup.setup_status());
  TP2_RETURN_IF_ERROR(recorded);
  return drafter;
}

}  // namespace tp2
