#include "libcore/model/drafter_config.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "libcore/base/error.h"
#include "libcore/base/file.h"
#include "libcore/base/json.h"
#include "libcore/base/status_macros.h"
#include "libcore/model/config_fields.h"

namespace tp2 {
namespace {

constexpr size_t kMaxConfigBytes = 4 << 20;
constexpr int kMaxLayers = 1024;
constexpr int kMaxTargets = 16;
constexpr char kOtherModel[] = "this tool drafts for DeepSeek-V4.1 and V4 DSpark checkpoints only";

// "DeepseekV41ForCausalLM" and "deepseek_v41_text" alike become "deepseekv41...".
std::string Squeeze(const std::string& name) {
  std::string result;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      result.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    }
  }
  return result;
}

// Every name that says what the model is; the three places must not contradict each other.
std::vector<std::string> ModelNames(const Json& document) {
  std::vector<std::string> names;
  const auto add = [&names](const Json& value) {
    if (value.is_string()) names.push_back(value.get<std::string>());
  };
  const auto add_member = [&add](const Json& object, const char* key) {
    if (object.is_object() && object.contains(key)) add(object.at(key));
  };
  add_member(document, "model_type");
  if (document.contains("text_config")) add_member(document.at("text_config"), "model_type");
  if (document.contains("architectures") && document.at("architectures").is_array()) {
    for (const Json& item : document.at("architectures")) add(item);
  }
  return names;
}

Arch ReadArch(const Json& document, ConfigFields& fields) {
  const std::vector<std::string> names = ModelNames(document);
  int v41_count = 0;
  int v4_count = 0;
  for (const std::string& name : names) {
    const std::string squeezed = Squeeze(name);
    if (squeezed.starts_with("deepseekv41")) {
      ++v41_count;
    } else if (squeezed.starts_with("deepseekv4")) {
      ++v4_count;
    }
  }
  if ((v41_count > 0) == (v4_count > 0)) {
    Json list = names;
    fields.Complain("model_type", "deepseek_v41 or deepseek_v4",
                    names.empty() ? "no such field" : ShortJson(list), kOtherModel);
  }
  return v41_count > 0 ? Arch::kV41 : Arch::kV4;
}

// Values outside int go to the nearest int; validation then names the field with its range.
int Clamp(int64_t value) {
  return static_cast<int>(
      std::clamp<int64_t>(value, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
}

int ReadInt(ConfigFields& fields, std::string_view key) { return Clamp(fields.Integer(key)); }

// V4 configs say num_nextn_predict_layers = 1 although three stages ship; the entries of
// compress_ratios beyond the trunk's layers count them. V4.1 says 3 itself. The checkpoint's
// tensors confirm either.
int ReadStages(ConfigFields& fields, Arch arch, int trunk_layers) {
  if (arch == Arch::kV4 && fields.Has("compress_ratios")) {
    const auto ratios = static_cast<int64_t>(fields.Integers("compress_ratios", kMaxLayers).size());
    if (ratios > trunk_layers) return Clamp(ratios - trunk_layers);
  }
  return ReadInt(fields, "num_nextn_predict_layers");
}

// V4.1 gives the drafter a bank of its own; V4's drafter has the trunk's shape.
void ReadExperts(ConfigFields& fields, DrafterConfig& config) {
  const auto count = fields.IntegerOfSpellings({"dspark_n_routed_experts"});
  const auto top_k =
      fields.IntegerOfSpellings({"dspark_num_experts_per_tok", "dspark_n_activated_experts"});
  if (config.arch == Arch::kV41) {
    // Falling back to the trunk's numbers here would build another router without a word.
    config.experts = count ? Clamp(*count) : ReadInt(fields, "dspark_n_routed_experts");
    config.experts_per_token =
        top_k ? Clamp(*top_k) : ReadInt(fields, "dspark_num_experts_per_tok");
  } else {
    config.experts = count ? Clamp(*count) : ReadInt(fields, "n_routed_experts");
    config.experts_per_token = top_k ? Clamp(*top_k) : ReadInt(fields, "num_experts_per_tok");
  }
}

void ReadTargets(ConfigFields& fields, DrafterConfig& config) {
  for (const int64_t layer : fields.Integers("dspark_target_layer_ids", kMaxTargets)) {
    config.target_layers.push_back(Clamp(layer));
  }
}

// Fields that this implementation knows in one form only.
void CheckFixedFields(ConfigFields& fields) {
  const char kNext[] = "this form of the model is not implemented";
  if (!fields.Has("dspark_block_size")) {
    fields.Complain("dspark_block_size", absl::StrCat(kBlockRows), "no such field",
                    "this is a plain MTP checkpoint; use one with a DSpark drafter");
  } else if (const int64_t rows = fields.Integer("dspark_block_size"); rows != kBlockRows) {
    fields.Complain("dspark_block_size", absl::StrCat(kBlockRows), absl::StrCat(rows),
                    "the drafter attends inside blocks of the trained size; other sizes draft "
                    "wrongly at every row");
  }
  if (const int64_t copies = fields.Integer("hc_mult"); copies != 4) {
    fields.Complain("hc_mult", "4", absl::StrCat(copies), kNext);
  }
  if (const std::string scoring = fields.Text("scoring_func"); scoring != "sqrtsoftplus") {
    fields.Complain("scoring_func", "\"sqrtsoftplus\"", ShortJson(Json(scoring)), kNext);
  }
  if (const int64_t shared = fields.Integer("n_shared_experts"); shared != 1) {
    fields.Complain("n_shared_experts", "1", absl::StrCat(shared), kNext);
  }
  fields.ExpectIfPresent("hidden_act", "silu", kNext);
  fields.ExpectIfPresent("norm_topk_prob", true, kNext);
  fields.ExpectIfPresent("num_key_value_heads", 1, kNext);
  fields.ExpectIfPresent("attention_bias", false, kNext);
  fields.ExpectIfPresent("tie_word_embeddings", false, kNext);
}

void ReadSizes(ConfigFields& fields, DrafterConfig& config) {
  config.dim = ReadInt(fields, "hidden_size");
  config.trunk_layers = ReadInt(fields, "num_hidden_layers");
  config.stages = ReadStages(fields, config.arch, config.trunk_layers);
  config.vocab = ReadInt(fields, "vocab_size");
  config.heads = ReadInt(fields, "num_attention_heads");
  config.head_dim = ReadInt(fields, "head_dim");
  config.rope_dims = ReadInt(fields, "qk_rope_head_dim");
  config.q_lora_rank = ReadInt(fields, "q_lora_rank");
  config.o_groups = ReadInt(fields, "o_groups");
  config.o_lora_rank = ReadInt(fields, "o_lora_rank");
  ReadExperts(fields, config);
  config.moe_inter = ReadInt(fields, "moe_intermediate_size");
  config.window = ReadInt(fields, "sliding_window");
  config.sinkhorn_iterations = ReadInt(fields, "hc_sinkhorn_iters");
  config.noise_token = ReadInt(fields, "dspark_noise_token_id");
  config.markov_rank = ReadInt(fields, "dspark_markov_rank");
  ReadTargets(fields, config);
}

void ReadNumbers(ConfigFields& fields, DrafterConfig& config) {
  config.route_scale = static_cast<float>(fields.Number("routed_scaling_factor"));
  config.swiglu_limit = static_cast<float>(fields.Number("swiglu_limit"));
  config.norm_eps = static_cast<float>(fields.Number("rms_norm_eps"));
  config.hc_eps = static_cast<float>(fields.Number("hc_eps"));
  // The drafter rotates without YaRN: rope_scaling and compress_rope_theta belong to the trunk.
  config.rope_theta = fields.Number("rope_theta");
  if (!fields.Has("kv_fake_quant")) return;
  const std::string mode = fields.Text("kv_fake_quant");
  if (mode == "none") {
    config.kv_fake_quant = KvFakeQuant::kNone;
  } else if (mode != "reference") {
    fields.Complain("kv_fake_quant", "\"reference\" or \"none\"", ShortJson(Json(mode)),
                    "remove the field to get the reference's rounding");
  }
}

}  // namespace

const char* ArchName(Arch arch) { return arch == Arch::kV41 ? "v41" : "v4"; }

const char* KvFakeQuantName(KvFakeQuant mode) {
  return mode == KvFakeQuant::kReference ? "reference" : "none";
}

std::string DrafterConfig::Canonical() const {
  std::vector<std::string> lines;
  const auto add_text = [&lines](const char* key, const std::string& value) {
    lines.push_back(absl::StrCat(key, "=", value, "\n"));
  };
  const auto add = [&](const char* key, int value) { add_text(key, absl::StrCat(value)); };
  // 9 and 17 significant digits name one fp32 and one fp64 value.
  const auto add_float = [&](const char* key, float value) {
    add_text(key, absl::StrFormat("%.9g", value));
  };
  add_text("arch", ArchName(arch));
  add("block_rows", kBlockRows);
  add("dim", dim);
  add("experts", experts);
  add("experts_per_token", experts_per_token);
  add("head_dim", head_dim);
  add("heads", heads);
  add_float("hc_eps", hc_eps);
  add_text("kv_fake_quant", KvFakeQuantName(kv_fake_quant));
  add("markov_rank", markov_rank);
  add("moe_inter", moe_inter);
  add("noise_token", noise_token);
  add_float("norm_eps", norm_eps);
  add("o_groups", o_groups);
  add("o_lora_rank", o_lora_rank);
  add("q_lora_rank", q_lora_rank);
  add("rope_dims", rope_dims);
  add_text("rope_theta", absl::StrFormat("%.17g", rope_theta));
  add_float("route_scale", route_scale);
  add("sinkhorn_iterations", sinkhorn_iterations);
  add("stages", stages);
  add_float("swiglu_limit", swiglu_limit);
  add_text("target_layers", absl::StrJoin(target_layers, ","));
  add("trunk_layers", trunk_layers);
  add("vocab", vocab);
  add("window", window);
  std::sort(lines.begin(), lines.end());
  return absl::StrJoin(lines, "");
}

absl::StatusOr<DrafterConfig> ParseDrafterConfig(std::string_view json_text,
                                                 const std::string& where) {
  TP2_ASSIGN_OR_RETURN(
      const Json document,
      ParseJson(json_text, where, {.max_bytes = kMaxConfigBytes, .max_depth = 32}));
  if (!document.is_object()) {
    return MakeError(absl::StatusCode::kInvalidArgument, {.what = "model config",
                                                          .expected = "a JSON object",
                                                          .got = ShortJson(document),
                                                          .where = where,
                                                          .next = "give the model's config.json"});
  }
  ConfigFields fields(document, where);
  DrafterConfig config;
  config.arch = ReadArch(document, fields);
  CheckFixedFields(fields);
  ReadSizes(fields, config);
  ReadNumbers(fields, config);
  TP2_RETURN_IF_ERROR(fields.status());
  TP2_RETURN_IF_ERROR(ValidateDrafterConfig(config, where));
  return config;
}

absl::StatusOr<DrafterConfig> LoadDrafterConfig(const std::string& model_dir) {
  const std::string path = absl::StrCat(model_dir, "/config.json");
  TP2_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxConfigBytes));
  return ParseDrafterConfig(text, path);
}

}  // namespace tp2
