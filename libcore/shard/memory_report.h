// MiB per item and rank before anything is allocated: the specification's "Memory per card in
// detail". From the sizes alone; widths may come from a checkpoint's files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/checkpoint/tensor_view.h"
#include "libcore/model/drafter_config.h"
#include "libcore/shard/layout.h"

namespace tp2 {

struct MemoryOptions {
  int64_t max_positions = kDefaultModelLength;
  int cached_rows = 8192;  // Markov bias rows kept per rank
};

// How the stored form of a tensor counts.
struct StoredForm {
  int bits = 0;       // EXL3 width; 0: not an EXL3 matrix
  int fp8_block = 0;  // wo_a as FP8 with one fp32 scale per block x block
};
using FormLookup = std::function<StoredForm(const TensorRule& rule)>;

struct MemoryLine {
  MemoryItem item;
  std::string name;
  std::vector<int64_t> rank_bytes;  // of every rank
  int64_t one_card_bytes = 0;
};

struct MemoryReport {
  std::vector<MemoryLine> lines;  // in MemoryItem's order
  std::vector<int64_t> rank_total_bytes;
  int64_t one_card_total_bytes = 0;
};

// The mission's pack: experts 2 bits, dense matrices 5, head 6, wo_a FP8.
StoredForm MissionForm(const TensorRule& rule, const DrafterConfig& config);

// Forms as the drafter's tensors of a folder have them (OpenShards; values are not read). Errors:
// kInvalidArgument for a matrix whose form cannot be told.
absl::StatusOr<FormLookup> FormsOf(const DrafterConfig& config,
                                   const std::vector<TensorView>& tensors);

// Bytes of the rank's part of a tensor as it is stored: trellis and scales, or values.
int64_t StoredBytes(const TensorRule& rule, const StoredForm& form, const DrafterConfig& config,
                    const ShardPlan& plan);

// Errors: MakePlans'.
absl::StatusOr<MemoryReport> ReportMemory(const DrafterConfig& config, int tp,
                                          const FormLookup& form, const MemoryOptions& options);

}  // namespace tp2
