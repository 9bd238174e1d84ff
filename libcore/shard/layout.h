// The shard table: for every tensor of the checkpoint, which part a rank holds. The specification's
// Layout section as data; a row says nothing about how many ranks there are. CutWeights cuts by the
// same rules with typed views; shard_check.h proves that both agree, bit for bit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/checkpoint/tensor_registry.h"
#include "libcore/model/drafter_config.h"
#include "libcore/shard/shard_plan.h"

namespace tp2 {

// The axis of the published shape [outputs, inputs] that is cut.
enum class CutAxis : uint8_t { kNone, kOutputs, kInputs };

// What a rank owns along the axis, in terms of its ShardPlan.
enum class Owner : uint8_t {
  kReplicated,   // every rank, whole
  kRankZero,     // rank 0, whole
  kNobody,       // never read
  kHeads,        // the rank's query heads
  kGroups,       // the rank's output groups
  kChannels,     // the rank's intermediate channels
  kInputHalves,  // the rank's canonical halves of a row-cut matrix
  kVocabulary,   // the rank's tokens
};

// Lines of the memory report; names in memory_report.h.
enum class MemoryItem : uint8_t {
  kEmbedding,
  kHead,
  kExperts,
  kDenseCut,
  kDenseReplicated,
  kMainProj,
  kOutputProjection,
  kMarkovEmbedding,
  kMarkovHead,
  kCachedRows,
  kRope,
  kNorms,
  kConfidence,
  kWindows,
};

struct LayoutRow {
  const char* pattern;  // of TensorRule::name; * stands for any characters but a dot
  CutAxis axis;
  Owner owner;
  int unit;  // every cut lies on a multiple of it, in elements of the axis
  MemoryItem item;
};

std::span<const LayoutRow> Layout();

// The row of a tensor of ExpectedTensors. Aborts for a name without exactly one row (a bug of
// ours, which a test over every shape excludes).
const LayoutRow& LayoutOf(std::string_view tensor_name);

const char* CutAxisName(CutAxis axis);
const char* OwnerName(Owner owner);

// The elements of the cut axis that the plan's rank holds: all of them for a replicated tensor,
// none for one that another rank owns. The axis of a replicated tensor is its outputs.
Span HeldSpan(const LayoutRow& row, const TensorRule& rule, const DrafterConfig& config,
              const ShardPlan& plan);

// Elements of the tensor that the rank holds.
int64_t HeldElements(const LayoutRow& row, const TensorRule& rule, const DrafterConfig& config,
                     const ShardPlan& plan);

// The plans of all ranks, after checking that every tensor is covered once and cut on its unit.
// Errors: kInvalidArgument naming the tensor or the size that does not cut.
absl::StatusOr<std::vector<ShardPlan>> MakePlans(const DrafterConfig& config, int tp);

}  // namespace tp2
