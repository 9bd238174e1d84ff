// The only instantiation of the controller over the CUDA op set.
#include <utility>

#include "libcore/base/status_macros.h"
#include "libcore/device/select.h"
#include "libcore/drafter/cpu_drafter.h"
#include "libcore/drafter/cuda_drafter.h"
#include "libcore/drafter/drafter-inl.h"
#include "libcore/math/numerics.h"
#include "libcore/ops/cuda/cuda_ops.h"

namespace tp2 {

absl::Status FindCudaDevice(const std::string& device_uuid) {
  return device::SelectDevice(device_uuid).status();
}

absl::StatusOr<std::unique_ptr<StepEngine>> MakeCudaDrafter(std::unique_ptr<Checkpoint> checkpoint,
                                                            std::span<const ShardPlan> plans,
                                                            const CudaDrafterOptions& options) {
  TP2_ASSIGN_OR_RETURN(const device::DeviceInfo device, device::SelectDevice(options.device_uuid));
  EngineInfo info;
  info.config = checkpoint->config();
  info.max_positions = options.max_positions;
  info.identity_digest = checkpoint->IdentityDigest();
  info.numerics_version = kNumericsVersion;
  info.portable_bits = HasPortableBits(checkpoint->weights());
  info.tp = plans.front().tp;
  info.mode = options.mode;
  info.backend = "cuda";
  info.device_names = {device.name + " " + device.uuid};
  TP2_ASSIGN_OR_RETURN(std::unique_ptr<CudaOps> ops,
                       CudaOps::Create(info.config, info.tp, info.max_positions, device));
  ops->set_uses_graphs(options.uses_graphs);
  ops->set_stands_in(options.stands_in);
  CudaOps& setup = *ops;
  auto drafter = std::make_unique<Drafter<CudaOps>>(std::move(info), std::move(checkpoint),
                                                    std::move(ops), plans);
  TP2_RETURN_IF_ERROR(setup.setup_status());
  const absl::Status recorded = drafter->Record();
  TP2_RETURN_IF_ERROR(setup.setup_status());
  TP2_RETURN_IF_ERROR(recorded);
  return drafter;
}

}  // namespace tp2
