// A deterministic sequence of STEPs that exercises what serving exercises: several slots, appends,
// rollbacks, partial and full windows, prompts, both row kinds, every batch size and n_out. The
// same for one seed on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "libcore/base/rng.h"
#include "libcore/drafter/step_engine.h"

namespace tp2 {

// One STEP with the rows it owns.
struct WorkloadRound {
  struct Reset {
    int slot;
    int64_t base;
  };
  std::vector<Reset> resets;              // to be applied before the STEP
  std::vector<std::vector<Bf16>> values;  // per entry
  std::vector<StepEntry> entries;         // rows.values point into `values`
  int n_out = kBlockRows;
};

// Thread-compatible. Follows the windows that an engine has after the same calls; no engine needed.
class Workload {
 public:
  Workload(const DrafterConfig& config, int64_t max_positions, uint64_t seed);

  WorkloadRound Next();

 private:
  StepEntry NextEntry(int slot, WorkloadRound& round);
  int RowCount(bool is_first);

  DrafterConfig config_;
  int64_t max_positions_;
  Rng rng_;
  std::vector<SlotWindow> windows_;
  std::vector<bool> is_open_;
};

// `count` bf16 values, uniform in [-1, 1).
std::vector<Bf16> RandomRows(Rng& rng, int64_t count);

}  // namespace tp2
