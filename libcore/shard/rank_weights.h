// The weights of one rank: the whole checkpoint's views, cut by the shard plan. Views only; nothing
// is copied.
#pragma once

#include <vector>

#include "libcore/checkpoint/weights.h"
#include "libcore/model/drafter_config.h"
#include "libcore/shard/shard_plan.h"

namespace tp2 {

// A down projection, once per half that the rank computes; half i of the rank reads input columns
// [i * inputs / halves, ...) of the rank's own activations.
using HalfMatrices = std::vector<exl3::MatrixView>;

struct RankExpert {
  exl3::MatrixView w1, w3;  // dim -> the rank's channels
  HalfMatrices w2;          // a half's channels -> dim
};

struct RankStage {
  exl3::MatrixView wq_a, wkv;  // replicated
  exl3::MatrixView wq_b;       // q_lora_rank -> the rank's heads
  OutputProjection wo_a;       // the rank's groups
  HalfMatrices wo_b;
  Half16View q_norm, kv_norm, attn_norm, ffn_norm;
  const float* attn_sink = nullptr;  // [the rank's heads]
  MixWeights attn_mix, ffn_mix;
  Half16View gate;
  const float* gate_bias = nullptr;
  std::vector<RankExpert> experts;
  RankExpert shared;
};

struct RankWeights {
  Half16View embed;
  exl3::MatrixView main_proj;
  exl3::MatrixView head;  // dim -> the rank's vocabulary
  Half16View main_norm, final_norm;
  std::vector<RankStage> stages;
  Half16View markov_embed;  // whole: looked up by any token
  Half16View markov_head;   // the rank's vocabulary rows
  Half16View confidence;
  const float* head_mix_fn = nullptr;
  const float* head_mix_base = nullptr;
  const float* head_mix_scale = nullptr;
};

RankWeights CutWeights(const DrafterConfig& config, const DrafterWeights& whole,
                       const ShardPlan& plan);

}  // namespace tp2
