// Body of the controller: the block forward, the head and the Markov loop.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "libcore/drafter/drafter.h"

namespace tp2 {

// Everything between the upload and the results: what a draft key names.
template <OpSet O>
void Drafter<O>::EnqueueDraft(const GraphKey& key) {
  ForEachRank([&](RankType& rank) {
    ops_->Embed(rank.index, {rank.step.head().block_ids.data(), key.requests * kBlockRows,
                             rank.weights.embed, rank.streams.data(), rank.pre.data()});
  });
  for (int stage = 0; stage < config_.stages; ++stage) RunStage(stage, key.requests);
  RunHead(key.requests, key.n_out, key.has_margins);
  ops_->CloseStep();
  RankType& first = *ranks_[0];
  ops_->ReadBack(first.index, &std::as_const(first.step).head().result,
                 std::span(result_.data(), 1));
}

template <OpSet O>
void Drafter<O>::RunStage(int s, int requests) {
  const int rows = requests * kBlockRows;
  ForEachRank([&](RankType& rank) {
    const RankStage& stage = rank.weights.stages[s];
    CollapseWeights pre = PreOf(rank.attn_mix.data());
    if (is_v41() && s == 0) pre = {rank.pre.data(), kStreams};
    if (is_v41() && s > 0) pre = PreOf(rank.ffn_mix.data());
    EnterArgs<S> enter = s == 0 ? EnterArgs<S>() : UpdateOf(rank, rank.ffn_mix.data());
    enter.mix_weights = stage.attn_mix;
    enter.mix = rank.attn_mix.data();
    EnterSublayer(rank, enter, pre, stage.attn_norm, rows);
    if (s > 0) ObserveUpdate(rank, "ffn_out", "streams", s - 1, rows);
    ObserveMix(rank, "attn", s, rank.attn_mix.data(), rows);
    Observe(rank, "attn_in", s, rank.x.data(), {rows, config_.dim});
    AttentionPartials(rank, s, requests);
  });
  Reduce(rows);
  ForEachRank([&](RankType& rank) {
    const RankStage& stage = rank.weights.stages[s];
    EnterArgs<S> enter = UpdateOf(rank, rank.attn_mix.data());
    enter.mix_weights = stage.ffn_mix;
    enter.mix = rank.ffn_mix.data();
    EnterSublayer(rank, enter, PreOf(is_v41() ? rank.attn_mix.data() : rank.ffn_mix.data()),
                  stage.ffn_norm, rows);
    ObserveUpdate(rank, "attn_out", "streams_attn", s, rows);
    ObserveMix(rank, "ffn", s, rank.ffn_mix.data(), rows);
    Observe(rank, "ffn_in", s, rank.x.data(), {rows, config_.dim});
    FfnPartials(rank, s, rows);
  });
  Reduce(rows);
}

// The end of the sublayer in front, whose output the ranks have just summed; a rank alone sums it
// here.
template <OpSet O>
auto Drafter<O>::UpdateOf(RankType& rank, const MixCoefficients* mix) const -> EnterArgs<S> {
  EnterArgs<S> args;
  if (is_alone()) {
    args.partials = rank.partials.data();
    args.half_stride = rank.half_stride();
  }
  args.y = rank.y.data();
  args.update = mix;
  return args;
}

template <OpSet O>
void Drafter<O>::EnterSublayer(RankType& rank, EnterArgs<S> args, const CollapseWeights& pre,
                               Half16View norm, int rows) {
  args.streams = rank.streams.data();
  args.rows = rows;
  args.pre = pre.weights;
  args.pre_stride = pre.stride;
  args.picked_rows = rows;
  args.norm = norm;
  args.x = rank.x.data();
  ops_->Enter(rank.index, args);
}

template <OpSet O>
void Drafter<O>::AttentionPartials(RankType& rank, int s, int requests) {
  const int r = rank.index;
  const int rows = requests * kBlockRows;
  const int heads = rank.plan.heads.count();
  const RankStage& stage = rank.weights.stages[s];
  const int q_lora = config_.q_lora_rank;
  float* query_latent = rank.query_latent.data();
  float* query_rank = rank.query_rank.data();
  float* kv = rank.kv.data();
  const LinearOpArgs down[] = {
      {&stage.wq_a, rank.x.data(), config_.dim, rows, query_latent},
      {&stage.wkv, rank.x.data(), config_.dim, rows, kv},
  };
  ops_->Linear(r, down);
  const StepHead& head = rank.step.head();
  ops_->Latents(
      r, {.query_norm = {query_latent, stage.q_norm, config_.norm_eps, rows, q_lora, query_rank},
          .wq_b = {&stage.wq_b, query_rank, q_lora, rows, rank.q.data()},
          .kv_norm = {kv, stage.kv_norm, config_.norm_eps, rows, config_.head_dim, kv},
          .kv_finish = {kv, head.block_positions.data(), rows, rank.block_kv.data(),
                        head.block_out_rows.data()}});
  ops_->Attend(r, {.queries = {rank.q.data(), head.block_positions.data(), rows, heads},
                   .attention = {rank.q.data(), rank.rings[s].data(), head.windows.data(),
                                 rank.block_kv.data(), stage.attn_sink, head.block_positions.data(),
                                 requests, heads, rank.o.data()}});
  const int groups = rank.plan.groups.count();
  ops_->GroupedOutput(r, {rank.o.data(), &stage.wo_a, rows, groups, rank.z.data()});
  const int64_t z_values = static_cast<int64_t>(groups) * config_.o_lora_rank;
  int64_t begin = 0;
  std::vector<LinearOpArgs> up;
  for (size_t half = 0; half < stage.wo_b.size(); ++half) {
    up.push_back({&stage.wo_b[half], rank.z.data() + begin, z_values, rows,
                  rank.partials.data() + static_cast<int64_t>(half) * rank.half_stride()});
    begin += stage.wo_b[half].k;
  }
  ops_->Linear(r, up);
  ObserveRing(rank, s, requests);
  Observe(rank, "qr", s, query_rank, {rows, q_lora});
  Observe(rank, "q", s, rank.q.data(), {rows, heads, config_.head_dim});
  Observe(rank, "k_block", s, rank.block_kv.data(), {rows, config_.head_dim});
  Observe(rank, "o", s, rank.o.data(), {rows, heads, config_.head_dim});
  Observe(rank, "z", s, rank.z.data(), {rows, z_values});
}

template <OpSet O>
void Drafter<O>::FfnPartials(RankType& rank, int s, int rows) {
  const RankStage& stage = rank.weights.stages[s];
  ops_->Router(rank.index, {rank.x.data(), stage.gate, stage.gate_bias, rows,
                            rank.router_logits.data(), rank.choices.data(), &stage});
  ops_->Experts(rank.index, {rank.x.data(), rank.choices.data(), &stage, rows, rank.partials.data(),
                             rank.half_stride()});
  ObserveRouting(rank, s, rows);
}

template <OpSet O>
void Drafter<O>::Reduce(int rows) {
  if (is_alone()) return;
  std::vector<AllReduceArgs<S>> sums;
  ForEachRank([&](RankType& rank) {
    sums.push_back({rank.partials.data(), rank.half_stride(), rows, rank.y.data()});
  });
  ops_->AllReduce(sums);
}

template <OpSet O>
void Drafter<O>::ObserveUpdate(const RankType& rank, const char* output, const char* streams, int s,
                               int rows) {
  Observe(rank, output, s, rank.y.data(), {rows, config_.dim});
  Observe(rank, streams, s, rank.streams.data(), {rows, kStreams, config_.dim});
}

template <OpSet O>
void Drafter<O>::RunHead(int requests, int n_out, bool has_margins) {
  const int block_rows = requests * kBlockRows;
  const int rows = requests * n_out;
  const RowPick pick = {n_out, kBlockRows};
  ForEachRank([&](RankType& rank) {
    const int r = rank.index;
    CollapseWeights pre = PreOf(rank.ffn_mix.data());
    EnterArgs<S> enter = UpdateOf(rank, rank.ffn_mix.data());
    enter.streams = rank.streams.data();
    enter.rows = block_rows;
    if (!is_v41()) {
      ops_->Enter(r, enter);
      ops_->HeadMix(r, {rank.streams.data(), rank.weights.head_mix_fn, rank.weights.head_mix_base,
                        rank.weights.head_mix_scale, block_rows, rank.pre.data()});
      pre = {rank.pre.data(), kStreams};
      enter.partials = nullptr;
      enter.y = nullptr;
    }
    enter.pre = pre.weights;
    enter.pre_stride = pre.stride;
    enter.pick = pick;
    enter.picked_rows = rows;
    enter.norm = rank.weights.final_norm;
    enter.collapsed = rank.collapse.data();
    enter.x = rank.hidden.data();
    ops_->Enter(r, enter);
    ObserveUpdate(rank, "ffn_out", "streams", config_.stages - 1, block_rows);
    const LinearOpArgs head = {&rank.weights.head, rank.hidden.data(), config_.dim, rows,
                               rank.base.data()};
    ops_->Linear(r, {&head, 1});
    Observe(rank, "collapse", -1, rank.collapse.data(), {rows, config_.dim});
    Observe(rank, "hidden", -1, rank.hidden.data(), {rows, config_.dim});
    Observe(rank, "base_logits", -1, rank.base.data(), {rows, rank.plan.vocab.count()});
  });
  for (int i = 0; i < n_out; ++i) {
    // The confidences need what is fed, not what the last position chooses.
    if (i == n_out - 1) RunConfidence(requests, n_out);
    std::vector<ExchangeArgs> exchanges;
    ForEachRank([&](RankType& rank) {
      StepResult& result = rank.step.head().result;
      const int64_t vocab = rank.plan.vocab.count();
      const ExchangeArgs choice = {.best = rank.best.data(),
                                   .requests = requests,
                                   .token = result.tokens.data() + i + 1,
                                   .token_stride = kTokensPerRequest,
                                   .runner_up = has_margins ? result.runner_up.data() + i : nullptr,
                                   .margin = has_margins ? result.margin.data() + i : nullptr,
                                   .result_stride = kBlockRows};
      ops_->Markov(rank.index, {.base = rank.base.data() + i * vocab,
                                .base_stride = n_out * vocab,
                                .previous = result.tokens.data() + i,
                                .previous_stride = kTokensPerRequest,
                                .embed = rank.weights.markov_embed,
                                .head = rank.weights.markov_head,
                                .vocab_begin = rank.plan.vocab.begin,
                                .requests = requests,
                                .wants_second = has_margins,
                                .best = rank.best.data(),
                                .choice = ranks_.size() == 1 ? choice : ExchangeArgs()});
      exchanges.push_back(choice);
      ObserveBest(rank, i, requests);
    });
    if (ranks_.size() > 1) ops_->Exchange(exchanges);
  }
}

template <OpSet O>
void Drafter<O>::RunConfidence(int requests, int n_out) {
  ForEachRank([&](RankType& rank) {
    if (!rank.plan.has_confidence) return;
    StepResult& result = rank.step.head().result;
    ops_->Confidence(rank.index, {rank.collapse.data(), result.tokens.data(), kTokensPerRequest,
                                  rank.weights.confidence, rank.weights.markov_embed, requests,
                                  n_out, result.confidence.data()});
    Observe(rank, "confidence", -1, result.confidence.data(), {requests, kBlockRows});
  });
}

}  // namespace tp2
