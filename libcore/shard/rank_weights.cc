#include "libcore/shard/rank_weights.h"

namespace tp2 {
namespace {

Half16View SliceRows(Half16View view, Span rows) {
  view.bits += static_cast<int64_t>(rows.begin) * view.columns;
  view.rows = rows.count();
  return view;
}

HalfMatrices CutHalves(const exl3::MatrixView& matrix, Span halves) {
  HalfMatrices cut;
  for (int half = halves.begin; half < halves.end; ++half) {
    const Span inputs = HalfOf(matrix.k, half);
    cut.push_back(exl3::SliceInputs(matrix, inputs.begin, inputs.end));
  }
  return cut;
}

RankExpert CutExpert(const ExpertWeights& expert, const ShardPlan& plan) {
  return {exl3::SliceOutputs(expert.w1, plan.channels.begin, plan.channels.end),
          exl3::SliceOutputs(expert.w3, plan.channels.begin, plan.channels.end),
          CutHalves(expert.w2, plan.halves)};
}

OutputProjection CutOutput(const DrafterConfig& config, const OutputProjection& whole,
                           Span groups) {
  OutputProjection cut = whole;
  if (whole.fp8 != nullptr) {
    const int64_t row = static_cast<int64_t>(groups.begin) * config.o_lora_rank;
    const int64_t scale_columns = config.group_inputs() / whole.fp8_block;
    cut.fp8 += row * config.group_inputs();
    cut.fp8_scale += row / whole.fp8_block * scale_columns;
  } else {
    cut.slices.assign(whole.slices.begin() + groups.begin, whole.slices.begin() + groups.end);
  }
  return cut;
}

RankStage CutStage(const DrafterConfig& config, const StageWeights& whole, const ShardPlan& plan) {
  RankStage stage;
  stage.wq_a = whole.wq_a;
  stage.wkv = whole.wkv;
  stage.wq_b = exl3::SliceOutputs(whole.wq_b, plan.heads.begin * config.head_dim,
                                  plan.heads.end * config.head_dim);
  stage.wo_a = CutOutput(config, whole.wo_a, plan.groups);
  stage.wo_b = CutHalves(whole.wo_b, plan.halves);
  stage.q_norm = whole.q_norm;
  stage.kv_norm = whole.kv_norm;
  stage.attn_norm = whole.attn_norm;
  stage.ffn_norm = whole.ffn_norm;
  stage.attn_sink = whole.attn_sink + plan.heads.begin;
  stage.attn_mix = whole.attn_mix;
  stage.ffn_mix = whole.ffn_mix;
  stage.gate = whole.gate;
  stage.gate_bias = whole.gate_bias;
  for (const ExpertWeights& expert : whole.experts)
    stage.experts.push_back(CutExpert(expert, plan));
  stage.shared = CutExpert(whole.shared, plan);
  return stage;
}

}  // namespace

RankWeights CutWeights(const DrafterConfig& config, const DrafterWeights& whole,
                       const ShardPlan& plan) {
  RankWeights rank;
  rank.embed = whole.embed;
  rank.main_proj = whole.main_proj;
  rank.head = exl3::SliceOutputs(whole.head, plan.vocab.begin, plan.vocab.end);
  rank.main_norm = whole.main_norm;
  rank.final_norm = whole.final_norm;
  for (const StageWeights& stage : whole.stages) {
    rank.stages.push_back(CutStage(config, stage, plan));
  }
  rank.markov_embed = whole.markov_embed;
  rank.markov_head = SliceRows(whole.markov_head, plan.vocab);
  rank.confidence = whole.confidence;
  rank.head_mix_fn = whole.head_mix_fn;
  rank.head_mix_base = whole.head_mix_base;
  rank.head_mix_scale = whole.head_mix_scale;
  return rank;
}

}  // namespace tp2
