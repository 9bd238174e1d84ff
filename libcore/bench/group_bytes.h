// Bytes that a draft step must move per group of kernels, from sizes alone: every weight once per
// operation that reads it, every input and output of an operation once, nothing for what stays
// inside an operation. A lower bound of the traffic, so a group's share of the copy bandwidth shows
// what is left to win.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libcore/bench/groups.h"
#include "libcore/model/drafter_config.h"
#include "libcore/shard/memory_report.h"
#include "libcore/shard/shard_plan.h"

namespace tp2::bench {

struct StepShape {
  int requests = 1;
  int n_out = kBlockRows;
  int window_rows = 0;  // context rows that a block attends to
  // Distinct routed experts that the STEP reads, per stage (CountExperts).
  std::vector<double> distinct_experts = {};
};

// The sum over the ranks of `plans`: one for a rank alone, all for what runs on one card.
PerGroup<int64_t> GroupBytes(const DrafterConfig& config, std::span<const ShardPlan> plans,
                             const FormLookup& form, const StepShape& shape);

}  // namespace tp2::bench
