// config.json texts with the values that DeepSeek published, as far as the drafter reads them; the
// fields around them keep the shape of the real files.
#pragma once

namespace tp2 {

inline constexpr char kV41FlashConfig[] = R"({
  "architectures": ["DeepseekV41ForConditionalGeneration"],
  "model_type": "deepseek_v41",
  "dtype": "bfloat16",
  "tie_word_embeddings": false,
  "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "rms_norm_eps": 1e-06},
  "text_config": {
    "model_type": "deepseek_v41_text",
    "vocab_size": 129280, "hidden_size": 5120, "rms_norm_eps": 1e-20,
    "num_hidden_layers": 40, "num_attention_heads": 64, "num_key_value_heads": 1,
    "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1280, "o_groups": 8,
    "o_lora_rank": 1024, "sliding_window": 128, "rope_theta": 10000,
    "compress_rope_theta": 160000,
    "rope_scaling": {"rope_type": "yarn", "factor": 16, "original_max_position_embeddings": 65536},
    "max_position_embeddings": 1048576,
    "n_routed_experts": 384, "num_experts_per_tok": 6, "n_shared_experts": 1,
    "moe_intermediate_size": 2304, "scoring_func": "sqrtsoftplus", "hidden_act": "silu",
    "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 1.5,
    "swiglu_limit": 10.0, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-06,
    "num_nextn_predict_layers": 3, "dspark_block_size": 5, "dspark_noise_token_id": 128799,
    "dspark_target_layer_ids": [37, 38, 39], "dspark_markov_rank": 256,
    "dspark_n_routed_experts": 128, "dspark_n_activated_experts": 3
  },
  "quantization_config": {"quant_method": "exl3", "bits": 2.0, "head_bits": 6, "codebook": "mul1"}
})";

// 43 trunk layers and 46 entries of compress_ratios: three stages, whatever
// num_nextn_predict_layers says.
inline constexpr char kV4FlashConfig[] = R"({
  "architectures": ["DeepseekV4ForCausalLM"],
  "model_type": "deepseek_v4",
  "vocab_size": 129280, "hidden_size": 4096, "rms_norm_eps": 1e-06,
  "num_hidden_layers": 43, "num_attention_heads": 64, "num_key_value_heads": 1,
  "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1024, "o_groups": 8,
  "o_lora_rank": 1024, "sliding_window": 128, "rope_theta": 10000,
  "compress_ratios": [0, 0, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128,
    4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4,
    0, 0, 0],
  "n_routed_experts": 256, "num_experts_per_tok": 6, "n_shared_experts": 1,
  "moe_intermediate_size": 2048, "scoring_func": "sqrtsoftplus", "hidden_act": "silu",
  "norm_topk_prob": true, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
  "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-06, "num_nextn_predict_layers": 1,
  "dspark_block_size": 5, "dspark_noise_token_id": 128799,
  "dspark_target_layer_ids": [40, 41, 42], "dspark_markov_rank": 256
})";

inline constexpr char kV4ProConfig[] = R"({
  "architectures": ["DeepseekV4ForCausalLM"],
  "model_type": "deepseek_v4",
  "vocab_size": 129280, "hidden_size": 7168, "rms_norm_eps": 1e-06,
  "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 1,
  "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1536, "o_groups": 16,
  "o_lora_rank": 1024, "sliding_window": 128, "rope_theta": 10000,
  "n_routed_experts": 384, "num_experts_per_tok": 6, "n_shared_experts": 1,
  "moe_intermediate_size": 3072, "scoring_func": "sqrtsoftplus", "hidden_act": "silu",
  "norm_topk_prob": true, "routed_scaling_factor": 2.5, "swiglu_limit": 10.0,
  "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-06, "num_nextn_predict_layers": 3,
  "dspark_block_size": 5, "dspark_noise_token_id": 128799,
  "dspark_target_layer_ids": [58, 59, 60], "dspark_markov_rank": 512
})";

}  // namespace tp2
