#include "libcore/shard/layout.h"

#include "absl/strings/str_cat.h"
#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2 {
namespace {

constexpr int kBlock = kHadamardBlock;

// The larger vocabulary part goes to rank 0, which so holds the lower tokens: a tie of the global
// argmax falls to the lower token, as on one card.
constexpr LayoutRow kLayout[] = {
    {"embed.weight", CutAxis::kNone, Owner::kReplicated, 1, MemoryItem::kEmbedding},
    {"mtp.*.main_proj", CutAxis::kNone, Owner::kReplicated, kBlock, MemoryItem::kMainProj},
    {"mtp.*.main_norm.weight", CutAxis::kNone, Owner::kReplicated, 1, MemoryItem::kNorms},
    {"mtp.*.hc_*", CutAxis::kNone, Owner::kReplicated, 1, MemoryItem::kNorms},
    {"mtp.*.attn_norm.weight", CutAxis::kNone, Owner::kReplicated, 1, MemoryItem::kNorms},
    {"mtp.*.ffn_norm.weight", CutAxis::kNone, Owner::kReplicated, 1, MemoryItem::kNorms},
    {"mtp.*.norm.weight", CutAxis::kNone, Owner::kReplicated, 1, MemoryItem::kNorms},
    {"mtp.*.attn.wq_a", CutAxis::kNone, Owner::kReplicated, kBlock, MemoryItem::kDenseReplicated},
    {"mtp.*.attn.wkv", CutAxis::kNone, Owner::kReplicated, kBlock, MemoryItem::kDenseReplicated},
    {"mtp.*.attn.q_norm.weight", CutAxis::kNone, Owner::kReplicated, 1, MemoryItem::kNorms},
    {"mtp.*.attn.kv_norm.weight", CutAxis::kNone, Owner::kReplicated, 1, MemoryItem::kNorms},
    {"mtp.*.attn.wq_b", CutAxis::kOutputs, Owner::kHeads, kBlock, MemoryItem::kDenseCut},
    {"mtp.*.attn.attn_sink", CutAxis::kOutputs, Owner::kHeads, 1, MemoryItem::kNorms},
    {"mtp.*.attn.wo_a", CutAxis::kOutputs, Owner::kGroups, kBlock, MemoryItem::kOutputProjection},
    {"mtp.*.attn.wo_b", CutAxis::kInputs, Owner::kInputHalves, kBlock, MemoryItem::kDenseCut},
    {"mtp.*.ffn.gate.weight", CutAxis::kNone, Owner::kReplicated, 1, MemoryItem::kNorms},
    {"mtp.*.ffn.gate.bias", CutAxis::kNone, Owner::kReplicated, 1, MemoryItem::kNorms},
    {"mtp.*.ffn.gate.bias_vl", CutAxis::kNone, Owner::kNobody, 1, MemoryItem::kNorms},
    {"mtp.*.ffn.shared_experts.w1", CutAxis::kOutputs, Owner::kChannels, kBlock,
     MemoryItem::kDenseCut},
    {"mtp.*.ffn.shared_experts.w3", CutAxis::kOutputs, Owner::kChannels, kBlock,
     MemoryItem::kDenseCut},
    {"mtp.*.ffn.shared_experts.w2", CutAxis::kInputs, Owner::kInputHalves, kBlock,
     MemoryItem::kDenseCut},
    {"mtp.*.ffn.experts.*.w1", CutAxis::kOutputs, Owner::kChannels, kBlock, MemoryItem::kExperts},
    {"mtp.*.ffn.experts.*.w3", CutAxis::kOutputs, Owner::kChannels, kBlock, MemoryItem::kExperts},
    {"mtp.*.ffn.experts.*.w2", CutAxis::kInputs, Owner::kInputHalves, kBlock, MemoryItem::kExperts},
    {"mtp.*.markov_head.embed.weight", CutAxis::kNone, Owner::kReplicated, 1,
     MemoryItem::kMarkovEmbedding},
    {"mtp.*.markov_head.markov_w1.weight", CutAxis::kNone, Owner::kReplicated, 1,
     MemoryItem::kMarkovEmbedding},
    {"mtp.*.markov_head.head.weight", CutAxis::kOutputs, Owner::kVocabulary, kVocabTile,
     MemoryItem::kMarkovHead},
    {"mtp.*.markov_head.markov_w2.weight", CutAxis::kOutputs, Owner::kVocabulary, kVocabTile,
     MemoryItem::kMarkovHead},
    {"mtp.*.confidence_head.proj.weight", CutAxis::kNone, Owner::kRankZero, 1,
     MemoryItem::kConfidence},
    {"head", CutAxis::kOutputs, Owner::kVocabulary, kVocabTile, MemoryItem::kHead},
};

bool Matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() != '*') {
    return !name.empty() && name.front() == pattern.front() &&
           Matches(pattern.substr(1), name.substr(1));
  }
  if (Matches(pattern.substr(1), name)) return true;
  return !name.empty() && name.front() != '.' && Matches(pattern, name.substr(1));
}

// `part` of `whole` owners, as elements of an axis of `extent`.
Span Scaled(Span part, int whole, int extent) {
  const int unit = extent / whole;
  return {part.begin * unit, part.end * unit};
}

int AxisExtent(const LayoutRow& row, const TensorRule& rule) {
  return row.axis == CutAxis::kInputs ? rule.inputs() : rule.outputs();
}

absl::Status BadCut(const std::string& name, int tp, const std::string& expected,
                    const std::string& got) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = absl::StrCat("shard table: ", name),
                    .expected = expected,
                    .got = got,
                    .where = absl::StrCat("tp ", tp),
                    .next = "this model cannot be cut that way"});
}

absl::Status CheckCut(const TensorRule& rule, const DrafterConfig& config,
                      const std::vector<ShardPlan>& plans) {
  const LayoutRow& row = LayoutOf(rule.name);
  if (row.axis == CutAxis::kNone) return absl::OkStatus();
  const int extent = AxisExtent(row, rule);
  const int tp = static_cast<int>(plans.size());
  int end = 0;
  for (const ShardPlan& plan : plans) {
    const Span held = HeldSpan(row, rule, config, plan);
    // The vocabulary's last tile may be ragged; everything else ends on its unit.
    const bool is_aligned =
        held.begin % row.unit == 0 && (held.end % row.unit == 0 || held.end == extent);
    if (held.begin != end || held.count() <= 0 || !is_aligned) {
      return BadCut(rule.name, tp, absl::StrCat("cuts on multiples of ", row.unit),
                    absl::StrCat("[", held.begin, ", ", held.end, ") on rank ", plan.rank));
    }
    end = held.end;
  }
  if (end == extent) return absl::OkStatus();
  return BadCut(rule.name, tp, absl::StrCat("all ", extent, " on some rank"), absl::StrCat(end));
}

}  // namespace

std::span<const LayoutRow> Layout() { return kLayout; }

const LayoutRow& LayoutOf(std::string_view tensor_name) {
  const LayoutRow* found = nullptr;
  for (const LayoutRow& row : kLayout) {
    if (!Matches(row.pattern, tensor_name)) continue;
    TP2_CHECK(found == nullptr);
    found = &row;
  }
  TP2_CHECK(found != nullptr);
  return *found;
}

const char* CutAxisName(CutAxis axis) {
  switch (axis) {
    case CutAxis::kNone:
      return "-";
    case CutAxis::kOutputs:
      return "outputs";
    case CutAxis::kInputs:
      break;
  }
  return "inputs";
}

const char* OwnerName(Owner owner) {
  switch (owner) {
    case Owner::kReplicated:
      return "replicated";
    case Owner::kRankZero:
      return "rank 0";
    case Owner::kNobody:
      return "unused";
    case Owner::kHeads:
      return "heads";
    case Owner::kGroups:
      return "groups";
    case Owner::kChannels:
      return "channels";
    case Owner::kInputHalves:
      return "halves";
    case Owner::kVocabulary:
      break;
  }
  return "vocabulary";
}

Span HeldSpan(const LayoutRow& row, const TensorRule& rule, const DrafterConfig& config,
              const ShardPlan& plan) {
  const int extent = AxisExtent(row, rule);
  switch (row.owner) {
    case Owner::kReplicated:
      return {0, extent};
    case Owner::kRankZero:
      return {0, plan.rank == 0 ? extent : 0};
    case Owner::kNobody:
      return {0, 0};
    case Owner::kHeads:
      return Scaled(plan.heads, config.heads, extent);
    case Owner::kGroups:
      return Scaled(plan.groups, config.o_groups, extent);
    case Owner::kChannels:
      return Scaled(plan.channels, config.moe_inter, extent);
    case Owner::kInputHalves:
      return Scaled(plan.halves, kHalves, extent);
    case Owner::kVocabulary:
      break;
  }
  return Scaled(plan.vocab, config.vocab, extent);
}

int64_t HeldElements(const LayoutRow& row, const TensorRule& rule, const DrafterConfig& config,
                     const ShardPlan& plan) {
  int64_t elements = HeldSpan(row, rule, config, plan).count();
  if (rule.shape.size() == 2) {
    elements *= row.axis == CutAxis::kInputs ? rule.outputs() : rule.inputs();
  }
  return elements;
}

absl::StatusOr<std::vector<ShardPlan>> MakePlans(const DrafterConfig& config, int tp) {
  std::vector<ShardPlan> plans;
  for (int rank = 0; rank < tp; ++rank) {
    TP2_ASSIGN_OR_RETURN(plans.emplace_back(), MakeShardPlan(config, tp, rank));
  }
  if (plans.empty()) return MakeShardPlan(config, tp, 0).status();
  for (const TensorRule& rule : ExpectedTensors(config)) {
    TP2_RETURN_IF_ERROR(CheckCut(rule, config, plans));
  }
  return plans;
}

}  // namespace tp2
