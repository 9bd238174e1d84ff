#include "libcore/checkpoint/tensor_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tp2 {
namespace {

constexpr int kStreams = 4;                  // hc_mult
constexpr int kMixRows = 2 * kStreams + 16;  // pre, post and the 4x4 combination
constexpr int kMixScales = 3;

class RuleList {
 public:
  void Add(std::string name, Storage storage, std::vector<int64_t> shape) {
    rules_.push_back({std::move(name), storage, std::move(shape)});
  }
  void Matrix(std::string name, int outputs, int inputs) {
    Add(std::move(name), Storage::kExl3, {outputs, inputs});
  }
  // Gate, up and down projection of a SwiGLU block.
  void FeedForward(const std::string& prefix, const DrafterConfig& config) {
    Matrix(prefix + "w1", config.moe_inter, config.dim);
    Matrix(prefix + "w3", config.moe_inter, config.dim);
    Matrix(prefix + "w2", config.dim, config.moe_inter);
  }
  std::vector<TensorRule> Take() { return std::move(rules_); }

 private:
  std::vector<TensorRule> rules_;
};

void AddMix(RuleList& list, const std::string& prefix, int dim) {
  list.Add(prefix + "_fn", Storage::kFloat, {kMixRows, kStreams * dim});
  list.Add(prefix + "_base", Storage::kFloat, {kMixRows});
  list.Add(prefix + "_scale", Storage::kFloat, {kMixScales});
}

void AddAttention(RuleList& list, const std::string& stage, const DrafterConfig& config) {
  const std::string prefix = stage + "attn.";
  list.Matrix(prefix + "wq_a", config.q_lora_rank, config.dim);
  list.Add(prefix + "q_norm.weight", Storage::kHalf, {config.q_lora_rank});
  list.Matrix(prefix + "wq_b", config.query_values(), config.q_lora_rank);
  list.Matrix(prefix + "wkv", config.head_dim, config.dim);
  list.Add(prefix + "kv_norm.weight", Storage::kHalf, {config.head_dim});
  list.Add(prefix + "attn_sink", Storage::kFloat, {config.heads});
  list.Add(prefix + "wo_a", Storage::kOutputProjection,
           {config.output_values(), config.group_inputs()});
  list.Matrix(prefix + "wo_b", config.dim, config.output_values());
}

void AddExperts(RuleList& list, int stage, const DrafterConfig& config) {
  const std::string prefix = StagePrefix(stage) + "ffn.";
  list.Add(prefix + "gate.weight", Storage::kHalf, {config.experts, config.dim});
  list.Add(prefix + "gate.bias", Storage::kFloat, {config.experts});
  // For image tokens, which a drafter never sees.
  if (config.arch == Arch::kV41) {
    list.Add(prefix + "gate.bias_vl", Storage::kUnusedFloat, {config.experts});
  }
  list.FeedForward(prefix + "shared_experts.", config);
  for (int expert = 0; expert < config.experts; ++expert) {
    list.FeedForward(ExpertPrefix(stage, expert), config);
  }
}

void AddLastStageExtras(RuleList& list, const std::string& stage, const DrafterConfig& config) {
  list.Add(stage + "norm.weight", Storage::kHalf, {config.dim});
  list.Add(MarkovEmbedName(config), Storage::kHalf, {config.vocab, config.markov_rank});
  list.Add(MarkovHeadName(config), Storage::kHalf, {config.vocab, config.markov_rank});
  list.Add(stage + "confidence_head.proj.weight", Storage::kHalf,
           {1, config.dim + config.markov_rank});
  if (config.arch == Arch::kV4) {
    list.Add(stage + "hc_head_fn", Storage::kFloat, {kStreams, kStreams * config.dim});
    list.Add(stage + "hc_head_base", Storage::kFloat, {kStreams});
    list.Add(stage + "hc_head_scale", Storage::kFloat, {1});
  }
}

void AddStage(RuleList& list, int stage, const DrafterConfig& config) {
  const std::string prefix = StagePrefix(stage);
  if (stage == 0) {
    list.Matrix(prefix + "main_proj", config.dim, config.tap_values());
    list.Add(prefix + "main_norm.weight", Storage::kHalf, {config.dim});
  }
  AddMix(list, prefix + "hc_attn", config.dim);
  list.Add(prefix + "attn_norm.weight", Storage::kHalf, {config.dim});
  AddAttention(list, prefix, config);
  AddMix(list, prefix + "hc_ffn", config.dim);
  list.Add(prefix + "ffn_norm.weight", Storage::kHalf, {config.dim});
  AddExperts(list, stage, config);
  if (stage == config.stages - 1) AddLastStageExtras(list, prefix, config);
}

std::string MarkovName(const DrafterConfig& config, const char* v41, const char* v4) {
  return absl::StrCat(StagePrefix(config.stages - 1), "markov_head.",
                      config.arch == Arch::kV41 ? v41 : v4, ".weight");
}

}  // namespace

std::string StagePrefix(int stage) { return absl::StrCat("mtp.", stage, "."); }

std::string ExpertPrefix(int stage, int expert) {
  return absl::StrCat("mtp.", stage, ".ffn.experts.", expert, ".");
}

std::string MarkovEmbedName(const DrafterConfig& config) {
  return MarkovName(config, "embed", "markov_w1");
}

std::string MarkovHeadName(const DrafterConfig& config) {
  return MarkovName(config, "head", "markov_w2");
}

std::vector<TensorRule> ExpectedTensors(const DrafterConfig& config) {
  RuleList list;
  list.Add("embed.weight", Storage::kHalf, {config.vocab, config.dim});
  for (int stage = 0; stage < config.stages; ++stage) AddStage(list, stage, config);
  list.Matrix("head", config.vocab, config.dim);
  return list.Take();
}

std::vector<std::string> PublishedNames(const DrafterConfig& config, int stage) {
  std::vector<std::string> names;
  const std::string prefix = StagePrefix(stage);
  for (const TensorRule& rule : ExpectedTensors(config)) {
    if (!rule.name.starts_with(prefix)) continue;
    if (rule.storage == Storage::kExl3 || rule.storage == Storage::kOutputProjection) {
      names.push_back(rule.name + ".weight");
      names.push_back(rule.name + ".scale");
    } else {
      names.push_back(rule.name);
    }
  }
  return names;
}

}  // namespace tp2
