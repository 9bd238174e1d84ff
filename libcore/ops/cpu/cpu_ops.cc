#include "libcore/ops/cpu/cpu_ops.h"

#include "libcore/ops/cpu/attention_ops-inl.h"
#include "libcore/ops/cpu/block_ops-inl.h"
#include "libcore/ops/cpu/expert_ops-inl.h"
#include "libcore/ops/cpu/head_ops-inl.h"

namespace tp2 {

template class CpuOps<Bf16>;
template class CpuOps<float>;

}  // namespace tp2
