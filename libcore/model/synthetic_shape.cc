#include "libcore/model/synthetic_shape.h"

#include <cstdlib>

#include "absl/strings/str_format.h"
#include "libcore/base/json.h"

namespace tp2 {
namespace {

DrafterConfig TinyV41() {
  DrafterConfig config;
  config.arch = Arch::kV41;
  config.dim = 256;
  config.trunk_layers = 4;
  config.stages = 3;
  config.vocab = 1280;
  config.heads = 4;
  config.head_dim = 128;
  config.rope_dims = 32;
  config.q_lora_rank = 128;
  config.o_groups = 2;
  config.o_lora_rank = 128;
  config.experts = 8;
  config.experts_per_token = 3;
  config.moe_inter = 256;
  config.route_scale = 1.5f;
  config.swiglu_limit = 10.0f;
  config.window = 8;
  config.rope_theta = 10000;
  config.norm_eps = 1e-20f;
  config.sinkhorn_iterations = 20;
  config.hc_eps = 1e-6f;
  config.noise_token = 1279;
  config.target_layers = {1, 2, 3};
  config.markov_rank = 32;
  return config;
}

DrafterConfig TinyV4() {
  DrafterConfig config = TinyV41();
  config.arch = Arch::kV4;
  config.rope_dims = 64;  // V4 rounds the other 64 values of a KV row in one group
  config.experts_per_token = 2;
  config.norm_eps = 1e-6f;
  return config;
}

DrafterConfig MediumV41() {
  DrafterConfig config = TinyV41();
  config.dim = 1024;
  config.trunk_layers = 8;
  config.vocab = 8448;  // 33 tiles of 256: an uneven cut
  config.heads = 16;
  config.rope_dims = 64;
  config.q_lora_rank = 256;
  config.o_groups = 4;
  config.o_lora_rank = 256;
  config.experts = 16;
  config.moe_inter = 768;
  config.window = 128;
  config.noise_token = 8447;
  config.target_layers = {5, 6, 7};
  config.markov_rank = 64;
  return config;
}

DrafterConfig FlashV41() {
  DrafterConfig config = MediumV41();
  config.dim = 5120;
  config.trunk_layers = 40;
  config.vocab = 129280;
  config.heads = 64;
  config.head_dim = 512;
  config.q_lora_rank = 1280;
  config.o_groups = 8;
  config.o_lora_rank = 1024;
  config.experts = 128;
  config.moe_inter = 2304;
  config.noise_token = 128799;
  config.target_layers = {37, 38, 39};
  config.markov_rank = 256;
  return config;
}

DrafterConfig FlashV4() {
  DrafterConfig config = FlashV41();
  config.arch = Arch::kV4;
  config.dim = 4096;
  config.trunk_layers = 43;
  config.q_lora_rank = 1024;
  config.experts = 256;
  config.experts_per_token = 6;
  config.moe_inter = 2048;
  config.norm_eps = 1e-6f;
  config.target_layers = {40, 41, 42};
  return config;
}

DrafterConfig ProV4() {
  DrafterConfig config = FlashV4();
  config.dim = 7168;
  config.trunk_layers = 61;
  config.heads = 128;
  config.q_lora_rank = 1536;
  config.o_groups = 16;
  config.experts = 384;
  config.moe_inter = 3072;
  config.route_scale = 2.5f;
  config.target_layers = {58, 59, 60};
  config.markov_rank = 512;
  return config;
}

std::vector<SyntheticShape> MakeShapes() {
  std::vector<SyntheticShape> shapes = {
      {.name = "tiny", .summary = "V4.1 in small, for tests", .config = TinyV41()},
      {.name = "tiny-v4", .summary = "V4 in small, for tests", .config = TinyV4()},
      {.name = "tiny-mixed",
       .summary = "V4.1 in small: any width and codebook, wo_a as EXL3",
       .config = TinyV41(),
       .is_mixed = true},
      {.name = "medium", .summary = "V4.1, about 60 MB", .config = MediumV41()},
      {.name = "v41-flash", .summary = "V4.1-Flash, full size", .config = FlashV41()},
      {.name = "v4-flash", .summary = "V4-Flash, full size", .config = FlashV4()},
      {.name = "v4-pro", .summary = "V4-Pro, full size", .config = ProV4()},
  };
  return shapes;
}

// The double whose shortest decimal form is that of the fp32, so that 1e-20f is written 1e-20.
double ShortDouble(float value) {
  for (int digits = 1; digits < 9; ++digits) {
    const double candidate = std::strtod(absl::StrFormat("%.*g", digits, value).c_str(), nullptr);
    if (static_cast<float>(candidate) == value) return candidate;
  }
  return value;
}

Json CommonFields(const DrafterConfig& config) {
  return {{"vocab_size", config.vocab},
          {"hidden_size", config.dim},
          {"rms_norm_eps", ShortDouble(config.norm_eps)},
          {"num_hidden_layers", config.trunk_layers},
          {"num_attention_heads", config.heads},
          {"num_key_value_heads", 1},
          {"head_dim", config.head_dim},
          {"qk_rope_head_dim", config.rope_dims},
          {"q_lora_rank", config.q_lora_rank},
          {"o_lora_rank", config.o_lora_rank},
          {"o_groups", config.o_groups},
          {"sliding_window", config.window},
          {"rope_theta", config.rope_theta},
          {"compress_rope_theta", 160000},
          {"n_shared_experts", 1},
          {"moe_intermediate_size", config.moe_inter},
          {"scoring_func", "sqrtsoftplus"},
          {"hidden_act", "silu"},
          {"topk_method", "noaux_tc"},
          {"norm_topk_prob", true},
          {"routed_scaling_factor", ShortDouble(config.route_scale)},
          {"swiglu_limit", ShortDouble(config.swiglu_limit)},
          {"hc_mult", 4},
          {"hc_sinkhorn_iters", config.sinkhorn_iterations},
          {"hc_eps", ShortDouble(config.hc_eps)},
          {"dspark_block_size", kBlockRows},
          {"dspark_noise_token_id", config.noise_token},
          {"dspark_target_layer_ids", config.target_layers},
          {"dspark_markov_rank", config.markov_rank}};
}

}  // namespace

const std::vector<SyntheticShape>& SyntheticShapes() {
  static const auto* const kShapes = new std::vector<SyntheticShape>(MakeShapes());
  return *kShapes;
}

const SyntheticShape* FindSyntheticShape(std::string_view name) {
  for (const SyntheticShape& shape : SyntheticShapes()) {
    if (shape.name == name) return &shape;
  }
  return nullptr;
}

std::string SyntheticConfigText(const SyntheticShape& shape, uint64_t seed) {
  const DrafterConfig& config = shape.config;
  Json fields = CommonFields(config);
  std::vector<int> ratios(config.trunk_layers + config.stages, 0);
  for (int layer = 2; layer < config.trunk_layers; ++layer)
    ratios[layer] = layer % 2 == 0 ? 4 : 128;
  fields["compress_ratios"] = ratios;
  Json document = Json::object();
  if (config.arch == Arch::kV41) {
    fields["model_type"] = "deepseek_v41_text";
    fields["num_nextn_predict_layers"] = config.stages;
    fields["n_routed_experts"] = 2 * config.experts;
    fields["num_experts_per_tok"] = config.experts_per_token + 1;
    fields["dspark_n_routed_experts"] = config.experts;
    fields["dspark_num_experts_per_tok"] = config.experts_per_token;
    document["text_config"] = std::move(fields);
    document["model_type"] = "deepseek_v41";
    document["architectures"] = {"DeepseekV41ForCausalLM"};
  } else {
    fields["num_nextn_predict_layers"] = 1;
    fields["n_routed_experts"] = config.experts;
    fields["num_experts_per_tok"] = config.experts_per_token;
    document = std::move(fields);
    document["model_type"] = "deepseek_v4";
    document["architectures"] = {"DeepseekV4ForCausalLM"};
  }
  document["tie_word_embeddings"] = false;
  document["quantization_config"] = {{"quant_method", "exl3"},
                                     {"bits", static_cast<double>(shape.expert_bits)},
                                     {"head_bits", shape.head_bits},
                                     {"codebook", "mul1"}};
  document["tp2_synthetic"] = {{"shape", shape.name}, {"seed", seed}};
  return document.dump(2) + "\n";
}

}  // namespace tp2
