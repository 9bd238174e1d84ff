#include "libcore/shard/weight_pairs.h"

#include <utility>

#include "libcore/checkpoint/tensor_registry.h"
#include "libcore/math/mixing.h"

namespace tp2 {
namespace {

class MatrixList {
 public:
  void Add(std::string name, const exl3::MatrixView& whole, std::vector<exl3::MatrixView> parts) {
    pairs_.push_back({std::move(name), whole, std::move(parts)});
  }
  void AddExpert(const std::string& prefix, const ExpertWeights& whole, const RankExpert& rank) {
    Add(prefix + "w1", whole.w1, {rank.w1});
    Add(prefix + "w3", whole.w3, {rank.w3});
    Add(prefix + "w2", whole.w2, rank.w2);
  }
  // The whole's groups of this rank, each stored as a matrix of its own.
  void AddSlices(const std::string& name, const OutputProjection& whole,
                 const OutputProjection& rank, Span groups) {
    for (size_t i = 0; i < rank.slices.size(); ++i) {
      const exl3::MatrixView& slice = whole.slices[groups.begin + i];
      pairs_.push_back(
          {name, slice, {rank.slices[i]}, (groups.begin + static_cast<int>(i)) * slice.n});
    }
  }
  std::vector<MatrixPair> Take() { return std::move(pairs_); }

 private:
  std::vector<MatrixPair> pairs_;
};

std::span<const std::byte> Bytes(const void* data, int64_t byte_count) {
  return {static_cast<const std::byte*>(data), static_cast<size_t>(byte_count)};
}

std::span<const std::byte> Bytes(const Half16View& view) {
  return Bytes(view.bits, int64_t{2} * view.rows * view.columns);
}

class PlainList {
 public:
  void Half(std::string name, const Half16View& whole, const Half16View& rank) {
    pairs_.push_back({std::move(name), Bytes(whole), Bytes(rank)});
  }
  void Floats(std::string name, const float* whole, int64_t whole_count, const float* rank,
              int64_t rank_count) {
    pairs_.push_back({std::move(name), Bytes(whole, 4 * whole_count), Bytes(rank, 4 * rank_count)});
  }
  void Same(std::string name, const float* whole, const float* rank, int64_t count) {
    Floats(std::move(name), whole, count, rank, count);
  }
  void Mix(const std::string& prefix, const MixWeights& whole, const MixWeights& rank, int dim) {
    Same(prefix + "_fn", whole.fn, rank.fn, int64_t{kMixOutputs} * kStreams * dim);
    Same(prefix + "_base", whole.base, rank.base, kMixOutputs);
    Same(prefix + "_scale", whole.scale, rank.scale, 3);
  }
  void Fp8(const std::string& name, const DrafterConfig& config, const OutputProjection& whole,
           const OutputProjection& rank, Span groups) {
    if (whole.fp8 == nullptr) return;
    const int64_t row_bytes = config.group_inputs();
    const int64_t rows = config.output_values();
    const int64_t rank_rows = int64_t{groups.count()} * config.o_lora_rank;
    const int64_t scale_row_bytes = 4 * (row_bytes / whole.fp8_block);
    pairs_.push_back(
        {name, Bytes(whole.fp8, rows * row_bytes), Bytes(rank.fp8, rank_rows * row_bytes)});
    pairs_.push_back({name, Bytes(whole.fp8_scale, rows / whole.fp8_block * scale_row_bytes),
                      Bytes(rank.fp8_scale, rank_rows / whole.fp8_block * scale_row_bytes),
                      whole.fp8_block});
  }
  std::vector<PlainPair> Take() { return std::move(pairs_); }

 private:
  std::vector<PlainPair> pairs_;
};

void AddStage(PlainList& list, int s, const DrafterConfig& config, const StageWeights& whole,
              const RankStage& rank, const ShardPlan& plan) {
  const std::string stage = StagePrefix(s);
  list.Mix(stage + "hc_attn", whole.attn_mix, rank.attn_mix, config.dim);
  list.Mix(stage + "hc_ffn", whole.ffn_mix, rank.ffn_mix, config.dim);
  list.Half(stage + "attn_norm.weight", whole.attn_norm, rank.attn_norm);
  list.Half(stage + "ffn_norm.weight", whole.ffn_norm, rank.ffn_norm);
  list.Half(stage + "attn.q_norm.weight", whole.q_norm, rank.q_norm);
  list.Half(stage + "attn.kv_norm.weight", whole.kv_norm, rank.kv_norm);
  list.Floats(stage + "attn.attn_sink", whole.attn_sink, config.heads, rank.attn_sink,
              plan.heads.count());
  list.Fp8(stage + "attn.wo_a", config, whole.wo_a, rank.wo_a, plan.groups);
  list.Half(stage + "ffn.gate.weight", whole.gate, rank.gate);
  list.Same(stage + "ffn.gate.bias", whole.gate_bias, rank.gate_bias, config.experts);
}

}  // namespace

std::vector<MatrixPair> MatrixPairs(const DrafterConfig& config, const DrafterWeights& whole,
                                    const RankWeights& rank, const ShardPlan& plan) {
  MatrixList list;
  list.Add("mtp.0.main_proj", whole.main_proj, {rank.main_proj});
  for (int s = 0; s < config.stages; ++s) {
    const std::string stage = StagePrefix(s);
    const StageWeights& mine = whole.stages[s];
    const RankStage& cut = rank.stages[s];
    list.Add(stage + "attn.wq_a", mine.wq_a, {cut.wq_a});
    list.Add(stage + "attn.wq_b", mine.wq_b, {cut.wq_b});
    list.Add(stage + "attn.wkv", mine.wkv, {cut.wkv});
    list.AddSlices(stage + "attn.wo_a", mine.wo_a, cut.wo_a, plan.groups);
    list.Add(stage + "attn.wo_b", mine.wo_b, cut.wo_b);
    list.AddExpert(stage + "ffn.shared_experts.", mine.shared, cut.shared);
    for (int e = 0; e < config.experts; ++e) {
      list.AddExpert(ExpertPrefix(s, e), mine.experts[e], cut.experts[e]);
    }
  }
  list.Add("head", whole.head, {rank.head});
  return list.Take();
}

std::vector<PlainPair> PlainPairs(const DrafterConfig& config, const DrafterWeights& whole,
                                  const RankWeights& rank, const ShardPlan& plan) {
  PlainList list;
  list.Half("embed.weight", whole.embed, rank.embed);
  list.Half("mtp.0.main_norm.weight", whole.main_norm, rank.main_norm);
  for (int s = 0; s < config.stages; ++s) {
    AddStage(list, s, config, whole.stages[s], rank.stages[s], plan);
  }
  const std::string last = StagePrefix(config.stages - 1);
  list.Half(last + "norm.weight", whole.final_norm, rank.final_norm);
  list.Half(MarkovEmbedName(config), whole.markov_embed, rank.markov_embed);
  list.Half(MarkovHeadName(config), whole.markov_head, rank.markov_head);
  if (plan.has_confidence) {
    list.Half(last + "confidence_head.proj.weight", whole.confidence, rank.confidence);
  }
  if (whole.head_mix_fn != nullptr) {
    list.Same(last + "hc_head_fn", whole.head_mix_fn, rank.head_mix_fn,
              int64_t{kStreams} * kStreams * config.dim);
    list.Same(last + "hc_head_base", whole.head_mix_base, rank.head_mix_base, kStreams);
    list.Same(last + "hc_head_scale", whole.head_mix_scale, rank.head_mix_scale, 1);
  }
  return list.Take();
}

}  // namespace tp2
