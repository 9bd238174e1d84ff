// One case per rule: the refusal is one line that names the field, what it holds and the file.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/model/drafter_config.h"
#include "tests/model/config_texts.h"

namespace tp2 {
namespace {

std::string RefusalOf(const std::string& text) {
  const auto config = ParseDrafterConfig(text, "m/config.json");
  if (config.ok()) {
    ADD_FAILURE() << "was accepted";
    return "";
  }
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  std::string message(config.status().message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_NE(message.find("m/config.json"), std::string::npos) << message;
  EXPECT_NE(message.find("; "), std::string::npos) << message;
  return message;
}

void ExpectHas(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << "lacks \"" << part << "\": " << message;
}

// V4-Flash with one field set, or removed when `value` is null.
std::string RefusalWith(const std::string& field, const Json& value) {
  Json document = Json::parse(kV4FlashConfig);
  if (value.is_null()) {
    document.erase(field);
  } else {
    document[field] = value;
  }
  return RefusalOf(document.dump());
}

TEST(DrafterConfigRefusal, EveryFieldIsNeeded) {
  for (const char* field : {"vocab_size",
                            "hidden_size",
                            "rms_norm_eps",
                            "num_hidden_layers",
                            "num_attention_heads",
                            "head_dim",
                            "qk_rope_head_dim",
                            "q_lora_rank",
                            "o_groups",
                            "o_lora_rank",
                            "sliding_window",
                            "rope_theta",
                            "n_routed_experts",
                            "num_experts_per_tok",
                            "n_shared_experts",
                            "moe_intermediate_size",
                            "scoring_func",
                            "routed_scaling_factor",
                            "swiglu_limit",
                            "hc_mult",
                            "hc_sinkhorn_iters",
                            "hc_eps",
                            "dspark_noise_token_id",
                            "dspark_target_layer_ids",
                            "dspark_markov_rank"}) {
    const std::string message = RefusalWith(field, nullptr);
    ExpectHas(message, std::string("config field ") + field + ":");
    ExpectHas(message, "no such field");
  }
}

TEST(DrafterConfigRefusal, PlainMtpCheckpointsAreNamed) {
  const std::string message = RefusalWith("dspark_block_size", nullptr);
  ExpectHas(message, "dspark_block_size");
  ExpectHas(message, "plain MTP checkpoint");
}

TEST(DrafterConfigRefusal, BlockSizesOtherThanFive) {
  for (const int rows : {0, 4, 6, 7, -5}) {
    const std::string message = RefusalWith("dspark_block_size", rows);
    ExpectHas(message, "dspark_block_size: expected 5, got " + std::to_string(rows));
  }
}

TEST(DrafterConfigRefusal, OtherModels) {
  Json document = Json::parse(kV4FlashConfig);
  document["model_type"] = "deepseek_v3";
  document["architectures"] = {"DeepseekV3ForCausalLM"};
  ExpectHas(RefusalOf(document.dump()), "deepseek_v3");
  document["model_type"] = "deepseek_v4";
  document["architectures"] = {"DeepseekV41ForCausalLM"};
  ExpectHas(RefusalOf(document.dump()), "expected deepseek_v41 or deepseek_v4");
  document.erase("model_type");
  document.erase("architectures");
  ExpectHas(RefusalOf(document.dump()), "no such field");
}

TEST(DrafterConfigRefusal, V41NeverTakesTheTrunksExperts) {
  for (const char* field : {"dspark_n_routed_experts", "dspark_n_activated_experts"}) {
    Json document = Json::parse(kV41FlashConfig);
    document["text_config"].erase(field);
    ExpectHas(RefusalOf(document.dump()), "no such field");
  }
}

TEST(DrafterConfigRefusal, ContradictingSpellingsAndPlaces) {
  Json document = Json::parse(kV41FlashConfig);
  document["text_config"]["dspark_num_experts_per_tok"] = 4;
  ExpectHas(RefusalOf(document.dump()), "dspark_n_activated_experts: expected 4");
  document = Json::parse(kV41FlashConfig);
  document["hidden_size"] = 4096;
  ExpectHas(RefusalOf(document.dump()), "5120 in text_config and 4096 outside");
}

struct Case {
  const char* field;
  Json value;
  const char* part;
};

TEST(DrafterConfigRefusal, ValuesOutsideTheirRange) {
  const std::vector<Case> cases = {
      {"hidden_size", 4100, "multiple of 128"},
      {"hidden_size", 0, "128 .. 8192"},
      {"hidden_size", -4096, "128 .. 8192"},
      {"hidden_size", 16384, "128 .. 8192"},
      {"hidden_size", int64_t{1} << 40, "128 .. 8192"},
      {"hidden_size", 18446744073709551615u, "an integer"},
      {"hidden_size", 4096.0, "an integer"},
      {"hidden_size", "4096", "an integer"},
      {"num_hidden_layers", 0, "1 .. 1024"},
      {"vocab_size", 129281, "multiple of 128"},
      {"vocab_size", 1 << 21, "128 .. 1048576"},
      {"vocab_size", 1 << 20, "below 2^31"},
      {"num_attention_heads", 63, "multiple of 2"},
      {"num_attention_heads", 512, "2 .. 256"},
      {"head_dim", 2048, "32 .. 1024"},
      {"head_dim", 48, "multiple of 32"},
      {"qk_rope_head_dim", 63, "multiple of 2"},
      {"qk_rope_head_dim", 514, "2 .. 512"},
      {"qk_rope_head_dim", 32, "groups of 64"},
      {"q_lora_rank", 1000, "multiple of 128"},
      {"o_groups", 3, "multiple of 2"},
      {"o_groups", 6, "a divisor of the 64 heads"},
      {"o_lora_rank", 64, "multiple of 128"},
      {"n_routed_experts", 0, "n_routed_experts"},
      {"n_routed_experts", 5000, "1 .. 4096"},
      {"num_experts_per_tok", 9, "1 .. 8"},
      {"num_experts_per_tok", 0, "1 .. 8"},
      {"moe_intermediate_size", 2048 + 128, "multiple of 256"},
      {"sliding_window", 0, "1 .. 4096"},
      {"hc_sinkhorn_iters", 0, "1 .. 1000"},
      {"dspark_noise_token_id", 129280, "0 .. 129279"},
      {"dspark_noise_token_id", -1, "0 .. 129279"},
      {"dspark_markov_rank", 100, "multiple of 32"},
      {"dspark_markov_rank", 4096, "32 .. 2048"},
      {"dspark_target_layer_ids", Json::array(), "number of layers"},
      {"dspark_target_layer_ids", {40, 42, 41}, "ascending"},
      {"dspark_target_layer_ids", {40, 41, 43}, "0 .. 42"},
      {"dspark_target_layer_ids", {1, 2, 3, 4, 5, 6, 7, 8, 9}, "number of layers"},
      {"dspark_target_layer_ids", 41, "a list"},
      {"dspark_target_layer_ids", {40, "41"}, "a list"},
      {"routed_scaling_factor", 0, "above 0"},
      {"swiglu_limit", -10.0, "above 0"},
      {"rope_theta", 0, "above 0"},
      {"rope_theta", "10000", "a finite number"},
      {"rms_norm_eps", 2.0, "at most 1"},
      {"rms_norm_eps", 1e-60, "above 0"},  // zero in fp32
      {"hc_eps", 0, "above 0"},
  };
  for (const Case& item : cases) {
    const std::string message = RefusalWith(item.field, item.value);
    ExpectHas(message, item.part);
    ExpectHas(message, item.field);
  }
}

TEST(DrafterConfigRefusal, FormsThatAreNotImplemented) {
  const std::vector<Case> cases = {{"hc_mult", 2, "expected 4, got 2"},
                                   {"scoring_func", "sigmoid", "sqrtsoftplus"},
                                   {"hidden_act", "gelu", "silu"},
                                   {"n_shared_experts", 2, "expected 1"},
                                   {"norm_topk_prob", false, "expected true"},
                                   {"num_key_value_heads", 8, "expected 1"},
                                   {"kv_fake_quant", "some", "\"reference\" or \"none\""}};
  for (const Case& item : cases) {
    const std::string message = RefusalWith(item.field, item.value);
    ExpectHas(message, item.part);
    ExpectHas(message, item.field);
  }
}

TEST(DrafterConfigRefusal, SmallMistakesInBigFilesDoNotFloodTheLine) {
  const std::string message = RefusalWith("hidden_size", std::string(100000, '\n'));
  EXPECT_LT(message.size(), 300u);
}

TEST(DrafterConfigRefusal, TextsThatAreNoConfig) {
  for (const char* text : {"", "[]", "5", "{\"text_config\": 1, \"model_type\": \"deepseek_v4\"}",
                           "{", "{\"a\":1,\"a\":2}"}) {
    EXPECT_FALSE(RefusalOf(text).empty());
  }
}

TEST(DrafterConfigRefusal, AStageCountOfNothing) {
  Json document = Json::parse(kV4FlashConfig);
  document.erase("compress_ratios");
  document["num_nextn_predict_layers"] = 0;
  ExpectHas(RefusalOf(document.dump()), "num_nextn_predict_layers");
}

}  // namespace
}  // namespace tp2
