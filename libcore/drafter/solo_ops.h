// One rank of two, alone: collectives replaced by local stand-ins. For the time and the memory of
// one rank's share; its drafts mean nothing.
#pragma once

#include <span>

#include "libcore/ops/cpu/cpu_ops.h"

namespace tp2 {

// Stand-in of the all-reduce: the rank's own half twice, y = bf16(p + p), the arithmetic of the
// real one without its wait. Stand-in of the exchange: the best two of the rank's own vocabulary,
// so that later positions follow another token than a real pair's would.
class SoloOps : public CpuOps<Bf16> {
 public:
  SoloOps(const DrafterConfig& config, int rank_count, int thread_count)
      : CpuOps<Bf16>(config, rank_count, thread_count), dim_(config.dim) {}

  void AllReduce(std::span<const AllReduceArgs<Bf16>> ranks) {
    for (const AllReduceArgs<Bf16>& rank : ranks) {
      const int64_t count = int64_t{rank.rows} * dim_;
      for (int64_t i = 0; i < count; ++i) {
        rank.y[i] = ToBf16(rank.partials[i] + rank.partials[i]);
      }
    }
  }

 private:
  int dim_;
};

static_assert(OpSet<SoloOps>);

}  // namespace tp2
