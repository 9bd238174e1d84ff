#include "libcore/bench/group_bytes.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "libcore/checkpoint/tensor_registry.h"
#include "libcore/math/mixing.h"
#include "libcore/shard/layout.h"

namespace tp2::bench {
namespace {

constexpr int64_t kBf16Bytes = 2;
constexpr int64_t kFloatBytes = 4;

bool Contains(const std::string& name, const char* part) { return absl::StrContains(name, part); }

// How often a step reads a tensor of the checkpoint, and for which group.
struct WeightUse {
  KernelGroup group;
  double times;
};

double ExpertShare(const std::string& name, const DrafterConfig& config, const StepShape& shape) {
  for (size_t stage = 0; stage < shape.distinct_experts.size(); ++stage) {
    if (absl::StartsWith(name, StagePrefix(static_cast<int>(stage)))) {
      return shape.distinct_experts[stage] / config.experts;
    }
  }
  return 0;
}

WeightUse UseOf(const TensorRule& rule, const DrafterConfig& config, const StepShape& shape) {
  const std::string& name = rule.name;
  switch (LayoutOf(name).item) {
    case MemoryItem::kHead:
      return {KernelGroup::kHead, 1};
    case MemoryItem::kExperts:
      return {KernelGroup::kExperts, ExpertShare(name, config, shape)};
    case MemoryItem::kDenseCut:
      return {Contains(name, "shared_experts") ? KernelGroup::kExperts : KernelGroup::kDense, 1};
    case MemoryItem::kDenseReplicated:
      return {KernelGroup::kDense, 1};
    case MemoryItem::kOutputProjection:
      return {KernelGroup::kWoA, 1};
    case MemoryItem::kMarkovHead:
      return {KernelGroup::kMarkov, static_cast<double>(shape.n_out)};
    case MemoryItem::kConfidence:
      return {KernelGroup::kOther, 1};
    case MemoryItem::kNorms:
      if (Contains(name, ".hc_")) return {KernelGroup::kMhc, 1};
      if (Contains(name, "attn_sink")) return {KernelGroup::kAttention, 1};
      if (Contains(name, ".gate.")) {
        return {KernelGroup::kRouting, rule.storage == Storage::kUnusedFloat ? 0.0 : 1.0};
      }
      // main_norm belongs to the context insert.
      return {KernelGroup::kNorms, Contains(name, "main_norm") ? 0.0 : 1.0};
    default:
      // main_proj belongs to the insert too; embeddings are looked up by row.
      return {KernelGroup::kOther, 0};
  }
}

void AddWeights(const DrafterConfig& config, const ShardPlan& plan, const FormLookup& form,
                const StepShape& shape, PerGroup<int64_t>& bytes) {
  PerGroup<double> sums = {};
  for (const TensorRule& rule : ExpectedTensors(config)) {
    const WeightUse use = UseOf(rule, config, shape);
    if (use.times == 0) continue;
    At(sums, use.group) +=
        use.times * static_cast<double>(StoredBytes(rule, form(rule), config, plan));
  }
  for (int group = 0; group < kGroupCount; ++group) {
    bytes[group] += static_cast<int64_t>(sums[group]);
  }
}

// Inputs and outputs of the operations of one stage.
void AddStage(const DrafterConfig& config, const ShardPlan& plan, const StepShape& shape,
              PerGroup<int64_t>& bytes) {
  const int64_t rows = int64_t{shape.requests} * kBlockRows;
  const int64_t row = rows * config.dim;  // elements
  const int64_t streams = row * kStreams * kBf16Bytes;
  const int64_t query = rows * plan.heads.count() * config.head_dim;
  const int64_t z = rows * plan.groups.count() * config.o_lora_rank;
  const int64_t query_rank = rows * config.q_lora_rank;
  const int64_t kv = rows * config.head_dim;
  const int64_t partials = plan.halves.count() * row;
  At(bytes, KernelGroup::kDense) +=
      kFloatBytes * (row + query_rank + query_rank + query + row + kv + z + partials);
  At(bytes, KernelGroup::kExperts) += kFloatBytes * (row + partials);
  At(bytes, KernelGroup::kWoA) += kFloatBytes * (query + z);
  // Two mixes read the streams, two collapses read them and write a row, two updates read and write
  // them and read y.
  At(bytes, KernelGroup::kMhc) +=
      2 * streams + 2 * (streams + kFloatBytes * row) + 2 * (2 * streams + kBf16Bytes * row);
  const int64_t keys = shape.requests * int64_t{shape.window_rows + kBlockRows} * config.head_dim;
  At(bytes, KernelGroup::kAttention) += kFloatBytes * 2 * query + kBf16Bytes * keys;
  At(bytes, KernelGroup::kNorms) +=
      kFloatBytes * 2 * (2 * row + query_rank + kv + query) + (kFloatBytes + kBf16Bytes) * kv;
  At(bytes, KernelGroup::kRouting) += kFloatBytes * (row + rows * config.experts);
  At(bytes, KernelGroup::kCollectives) += 2 * (kFloatBytes * partials + kBf16Bytes * row);
}

void AddHead(const DrafterConfig& config, const ShardPlan& plan, const StepShape& shape,
             PerGroup<int64_t>& bytes) {
  const int64_t rows = int64_t{shape.requests} * shape.n_out;
  const int64_t row = rows * config.dim;
  const int64_t logits = rows * plan.vocab.count();
  At(bytes, KernelGroup::kHead) += kFloatBytes * (row + logits);
  At(bytes, KernelGroup::kMarkov) += kFloatBytes * logits + kBf16Bytes * rows * config.markov_rank;
  At(bytes, KernelGroup::kMhc) += kBf16Bytes * row * kStreams + kFloatBytes * row;
  At(bytes, KernelGroup::kNorms) += kFloatBytes * 2 * row;
  if (plan.has_confidence) {
    At(bytes, KernelGroup::kOther) += kFloatBytes * row + kBf16Bytes * rows * config.markov_rank;
  }
}

}  // namespace

PerGroup<int64_t> GroupBytes(const DrafterConfig& config, std::span<const ShardPlan> plans,
                             const FormLookup& form, const StepShape& shape) {
  PerGroup<int64_t> bytes = {};
  for (const ShardPlan& plan : plans) {
    AddWeights(config, plan, form, shape, bytes);
    for (int stage = 0; stage < config.stages; ++stage) AddStage(config, plan, shape, bytes);
    AddHead(config, plan, shape, bytes);
  }
  return bytes;
}

}  // namespace tp2::bench
