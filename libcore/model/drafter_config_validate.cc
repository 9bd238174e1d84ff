// Ranges and cross-field rules. The upper limits leave room above the largest public model
// (V4-Pro) and keep every product of two sizes that the code forms in `int` below 2^31.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/model/drafter_config.h"

namespace tp2 {
namespace {

constexpr char kCheckConfig[] = "compare config.json with the model's published one";
constexpr int kMaxDim = 8192;
constexpr int kMaxQueryValues = 1 << 17;
constexpr int kMaxOutputValues = 1 << 16;
constexpr int kMaxTaps = 8;
constexpr int kMaxExpertsPerToken = 8;
constexpr int64_t kMaxIntProduct = (int64_t{1} << 31) - 1;

class Rules {
 public:
  explicit Rules(const std::string& where) : where_(where) {}

  void Fail(const char* field, const std::string& expected, const std::string& got) {
    if (!status_.ok()) return;
    status_ =
        MakeError(absl::StatusCode::kInvalidArgument, {.what = absl::StrCat("config field ", field),
                                                       .expected = expected,
                                                       .got = got,
                                                       .where = where_,
                                                       .next = kCheckConfig});
  }

  struct Range {
    int64_t low = 1;
    int64_t high = 1;
    int multiple = 1;
  };
  void InRange(const char* field, int64_t value, const Range& range) {
    if (value >= range.low && value <= range.high && value % range.multiple == 0) return;
    std::string expected = absl::StrCat("an integer ", range.low, " .. ", range.high);
    if (range.multiple > 1) absl::StrAppend(&expected, " that is a multiple of ", range.multiple);
    Fail(field, expected, absl::StrCat(value));
  }
  void Positive(const char* field, double value, double high) {
    if (std::isfinite(value) && value > 0 && value <= high) return;
    Fail(field, absl::StrCat("a number above 0, at most ", high), absl::StrCat(value));
  }

  const absl::Status& status() const { return status_; }

 private:
  const std::string& where_;
  absl::Status status_;
};

void CheckRanges(const DrafterConfig& config, Rules& rules) {
  rules.InRange("hidden_size", config.dim,
                {.low = kHadamardBlock, .high = kMaxDim, .multiple = kHadamardBlock});
  rules.InRange("num_hidden_layers", config.trunk_layers, {.high = 1024});
  rules.InRange("num_nextn_predict_layers (stages)", config.stages, {.high = 16});
  rules.InRange("vocab_size", config.vocab,
                {.low = kHadamardBlock, .high = 1 << 20, .multiple = kHadamardBlock});
  // Both cards hold whole heads and whole output groups.
  rules.InRange("num_attention_heads", config.heads, {.low = 2, .high = 256, .multiple = 2});
  rules.InRange("head_dim", config.head_dim, {.low = 32, .high = 1024, .multiple = 32});
  rules.InRange("qk_rope_head_dim", config.rope_dims,
                {.low = 2, .high = config.head_dim, .multiple = 2});
  rules.InRange("q_lora_rank", config.q_lora_rank,
                {.low = kHadamardBlock, .high = kMaxDim, .multiple = kHadamardBlock});
  rules.InRange("o_groups", config.o_groups, {.low = 2, .high = 64, .multiple = 2});
  rules.InRange("o_lora_rank", config.o_lora_rank,
                {.low = kHadamardBlock, .high = kMaxDim, .multiple = kHadamardBlock});
  rules.InRange("n_routed_experts (drafter)", config.experts, {.high = 4096});
  rules.InRange("num_experts_per_tok (drafter)", config.experts_per_token,
                {.high = std::min(kMaxExpertsPerToken, config.experts)});
  // Halved between cards and between the canonical halves of w2.
  rules.InRange("moe_intermediate_size", config.moe_inter,
                {.low = 2 * kHadamardBlock, .high = kMaxDim, .multiple = 2 * kHadamardBlock});
  rules.InRange("sliding_window", config.window, {.high = 4096});
  rules.InRange("hc_sinkhorn_iters", config.sinkhorn_iterations, {.high = 1000});
  rules.InRange("dspark_noise_token_id", config.noise_token, {.low = 0, .high = config.vocab - 1});
  rules.InRange("dspark_markov_rank", config.markov_rank,
                {.low = 32, .high = 2048, .multiple = 32});
}

void CheckTargets(const DrafterConfig& config, Rules& rules) {
  rules.InRange("dspark_target_layer_ids (number of layers)", config.tap_count(),
                {.high = kMaxTaps});
  for (int i = 0; i < config.tap_count(); ++i) {
    const int layer = config.target_layers[i];
    rules.InRange("dspark_target_layer_ids", layer, {.low = 0, .high = config.trunk_layers - 1});
    if (i > 0 && layer <= config.target_layers[i - 1]) {
      rules.Fail("dspark_target_layer_ids", "ascending layers",
                 absl::StrCat(layer, " after ", config.target_layers[i - 1]));
    }
  }
}

void CheckProducts(const DrafterConfig& config, Rules& rules) {
  rules.InRange("num_attention_heads * head_dim", config.query_values(),
                {.high = kMaxQueryValues, .multiple = kHadamardBlock});
  rules.InRange("o_groups * o_lora_rank", config.output_values(),
                {.high = kMaxOutputValues, .multiple = 2 * kHadamardBlock});
  if (static_cast<int64_t>(config.vocab) * config.dim > kMaxIntProduct) {
    rules.Fail("vocab_size * hidden_size", "below 2^31",
               absl::StrCat(static_cast<int64_t>(config.vocab) * config.dim));
  }
  if (static_cast<int64_t>(config.vocab) * config.markov_rank > kMaxIntProduct) {
    rules.Fail("vocab_size * dspark_markov_rank", "below 2^31",
               absl::StrCat(static_cast<int64_t>(config.vocab) * config.markov_rank));
  }
  if (config.heads % config.o_groups != 0) {
    rules.Fail("o_groups", absl::StrCat("a divisor of the ", config.heads, " heads"),
               absl::StrCat(config.o_groups));
    return;
  }
  rules.InRange("num_attention_heads * head_dim / o_groups", config.group_inputs(),
                {.high = kMaxQueryValues, .multiple = kHadamardBlock});
  if (config.fake_quant_dims() % config.fake_quant_group() != 0) {
    rules.Fail("qk_rope_head_dim",
               absl::StrCat("a KV row whose fake-quantized part splits into groups of ",
                            config.fake_quant_group()),
               absl::StrCat(config.fake_quant_dims(), " values"));
  }
}

}  // namespace

absl::Status ValidateDrafterConfig(const DrafterConfig& config, const std::string& where) {
  Rules rules(where);
  CheckRanges(config, rules);
  // The products below are safe only once every factor is in range.
  TP2_RETURN_IF_ERROR(rules.status());
  CheckTargets(config, rules);
  CheckProducts(config, rules);
  rules.Positive("routed_scaling_factor", config.route_scale, 1e3);
  rules.Positive("swiglu_limit", config.swiglu_limit, 1e4);
  rules.Positive("rope_theta", config.rope_theta, 1e12);
  rules.Positive("rms_norm_eps", config.norm_eps, 1);
  rules.Positive("hc_eps", config.hc_eps, 1);
  return rules.status();
}

}  // namespace tp2
