// The drafter over the CPU op sets of the modes that are not one process in one place.
#include "libcore/drafter/cpu_drafter-inl.h"
#include "libcore/drafter/host_pair_ops.h"
#include "libcore/drafter/solo_ops.h"

namespace tp2 {

template std::unique_ptr<Drafter<SoloOps>> MakeCpuDrafter(std::unique_ptr<Checkpoint>,
                                                          std::span<const ShardPlan>,
                                                          const CpuDrafterOptions&);
template std::unique_ptr<Drafter<HostPairOps>> MakeCpuDrafter(std::unique_ptr<Checkpoint>,
                                                              std::span<const ShardPlan>,
                                                              const CpuDrafterOptions&);

}  // namespace tp2
