#include "libcore/shard/memory_report.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/exl3/matrix.h"

namespace tp2 {
namespace {

constexpr int kItemCount = static_cast<int>(MemoryItem::kWindows) + 1;
// RoPE rows beyond the longest sequence, so that a block at its very end needs no special case.
constexpr int kSpareRopeRows = 2048;
constexpr int kBf16Bytes = 2;
constexpr int kFloatBytes = 4;

const char* ItemName(MemoryItem item) {
  switch (item) {
    case MemoryItem::kEmbedding:
      return "embedding";
    case MemoryItem::kHead:
      return "head";
    case MemoryItem::kExperts:
      return "routed experts";
    case MemoryItem::kDenseCut:
      return "wq_b, wo_b, shared expert";
    case MemoryItem::kDenseReplicated:
      return "wq_a, wkv";
    case MemoryItem::kMainProj:
      return "main_proj";
    case MemoryItem::kOutputProjection:
      return "wo_a";
    case MemoryItem::kMarkovEmbedding:
      return "Markov embedding";
    case MemoryItem::kMarkovHead:
      return "Markov head";
    case MemoryItem::kCachedRows:
      return "cached rows and token map";
    case MemoryItem::kRope:
      return "RoPE table";
    case MemoryItem::kNorms:
      return "norms, router, mixes";
    case MemoryItem::kConfidence:
      return "confidence head";
    case MemoryItem::kWindows:
      break;
  }
  return "windows";
}

bool EndsWith(const std::string& text, std::string_view end) { return text.ends_with(end); }

int64_t Exl3Bytes(int64_t inputs, int64_t outputs, int bits) {
  return inputs * outputs / 8 * bits + kBf16Bytes * (inputs + outputs);
}

// wo_a as one EXL3 matrix per group.
int64_t SliceBytes(const DrafterConfig& config, int64_t outputs, int bits) {
  const int64_t groups = outputs / config.o_lora_rank;
  return groups * Exl3Bytes(config.group_inputs(), config.o_lora_rank, bits);
}

// What the report counts: the router's weights as fp32, as the specification does; kept in 16 bits
// they need half of it.
int64_t ReportedBytes(const TensorRule& rule, const StoredForm& form, const DrafterConfig& config,
                      const ShardPlan& plan) {
  const int64_t bytes = StoredBytes(rule, form, config, plan);
  return EndsWith(rule.name, "gate.weight") ? bytes / kBf16Bytes * kFloatBytes : bytes;
}

// What is no tensor of the checkpoint.
void AddState(const DrafterConfig& config, const MemoryOptions& options, const ShardPlan& plan,
              std::vector<int64_t>& bytes) {
  const auto at = [&bytes](MemoryItem item) -> int64_t& { return bytes[static_cast<int>(item)]; };
  at(MemoryItem::kCachedRows) =
      int64_t{options.cached_rows} * plan.vocab.count() * kBf16Bytes + int64_t{config.vocab} * 4;
  at(MemoryItem::kRope) = (options.max_positions + kSpareRopeRows) * config.rope_dims * kFloatBytes;
  at(MemoryItem::kWindows) =
      int64_t{kSlotCount} * config.ring_rows() * config.head_dim * kBf16Bytes * config.stages;
}

std::vector<int64_t> RankBytes(const DrafterConfig& config, const ShardPlan& plan,
                               const FormLookup& form, const MemoryOptions& options) {
  std::vector<int64_t> bytes(kItemCount);
  for (const TensorRule& rule : ExpectedTensors(config)) {
    bytes[static_cast<int>(LayoutOf(rule.name).item)] +=
        ReportedBytes(rule, form(rule), config, plan);
  }
  AddState(config, options, plan, bytes);
  return bytes;
}

absl::Status UnknownForm(const std::string& name) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = absl::StrCat("tensor ", name),
                    .expected = "NAME.trellis, or NAME.weight for wo_a",
                    .got = "neither",
                    .where = "",
                    .next = "count from the config alone with --config-only"});
}

}  // namespace

StoredForm MissionForm(const TensorRule& rule, const DrafterConfig& config) {
  if (rule.storage == Storage::kOutputProjection) return {.fp8_block = config.fp8_block()};
  if (rule.storage != Storage::kExl3) return {};
  const MemoryItem item = LayoutOf(rule.name).item;
  if (item == MemoryItem::kHead) return {.bits = 6};
  return {.bits = item == MemoryItem::kExperts ? 2 : 5};
}

absl::StatusOr<FormLookup> FormsOf(const DrafterConfig& config,
                                   const std::vector<TensorView>& tensors) {
  constexpr std::string_view kTrellis = ".trellis";
  std::map<std::string, int> bits;
  for (const TensorView& view : tensors) {
    if (!EndsWith(view.name, kTrellis) || view.shape.size() != 3) continue;
    std::string name = view.name.substr(0, view.name.size() - kTrellis.size());
    const int width = static_cast<int>(view.shape[2] / exl3::kTile);
    bits[name.substr(0, name.find(".slice."))] = width;
  }
  auto forms = std::make_shared<std::map<std::string, StoredForm>>();
  for (const TensorRule& rule : ExpectedTensors(config)) {
    if (rule.storage != Storage::kExl3 && rule.storage != Storage::kOutputProjection) continue;
    StoredForm form;
    if (const auto found = bits.find(rule.name); found != bits.end()) {
      form.bits = found->second;
    } else if (rule.storage == Storage::kOutputProjection) {
      form.fp8_block = config.fp8_block();
    } else {
      return UnknownForm(rule.name);
    }
    if (form.bits < 0 || form.bits > exl3::kMaxBits) return UnknownForm(rule.name);
    (*forms)[rule.name] = form;
  }
  return [forms](const TensorRule& rule) {
    const auto found = forms->find(rule.name);
    return found == forms->end() ? StoredForm{} : found->second;
  };
}

int64_t StoredBytes(const TensorRule& rule, const StoredForm& form, const DrafterConfig& config,
                    const ShardPlan& plan) {
  const LayoutRow& row = LayoutOf(rule.name);
  const int64_t held = HeldSpan(row, rule, config, plan).count();
  const int64_t elements = HeldElements(row, rule, config, plan);
  switch (rule.storage) {
    case Storage::kExl3:
      return row.axis == CutAxis::kInputs ? Exl3Bytes(held, rule.outputs(), form.bits)
                                          : Exl3Bytes(rule.inputs(), held, form.bits);
    case Storage::kOutputProjection:
      if (form.bits != 0) return SliceBytes(config, held, form.bits);
      return elements + elements / (form.fp8_block * form.fp8_block) * kFloatBytes;
    case Storage::kHalf:
      return elements * kBf16Bytes;
    case Storage::kFloat:
    case Storage::kUnusedFloat:
      break;
  }
  return elements * kFloatBytes;
}

absl::StatusOr<MemoryReport> ReportMemory(const DrafterConfig& config, int tp,
                                          const FormLookup& form, const MemoryOptions& options) {
  TP2_ASSIGN_OR_RETURN(const std::vector<ShardPlan> plans, MakePlans(config, tp));
  TP2_ASSIGN_OR_RETURN(const ShardPlan unsplit, MakeShardPlan(config, 1, 0));
  std::vector<std::vector<int64_t>> ranks;
  for (const ShardPlan& plan : plans) ranks.push_back(RankBytes(config, plan, form, options));
  const std::vector<int64_t> one_card = RankBytes(config, unsplit, form, options);
  MemoryReport report;
  report.rank_total_bytes.resize(plans.size());
  for (int i = 0; i < kItemCount; ++i) {
    const auto item = static_cast<MemoryItem>(i);
    MemoryLine line{item, ItemName(item), {}, one_card[i]};
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      line.rank_bytes.push_back(ranks[rank][i]);
      report.rank_total_bytes[rank] += ranks[rank][i];
    }
    report.one_card_total_bytes += one_card[i];
    report.lines.push_back(std::move(line));
  }
  return report;
}

}  // namespace tp2
