// One rank of the drafter: its part of the weights and all its working memory, allocated once from
// the sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "libcore/drafter/step_memory.h"
#include "libcore/model/drafter_config.h"
#include "libcore/ops/op_args.h"
#include "libcore/ops/op_set.h"
#include "libcore/shard/rank_weights.h"
#include "libcore/shard/shard_plan.h"

namespace tp2 {

// Shapes use R = kMaxBlockRows, I = kMaxRowsPerMessage; widths are the rank's own.
template <OpSet O>
struct Rank {
  using S = typename O::Stored;
  template <class T>
  using Buffer = typename O::template Buffer<T>;

  Rank(O& ops, const DrafterConfig& c, const ShardPlan& p, RankWeights w)
      : index(p.rank), plan(p), weights(std::move(w)) {
    const int64_t dim = c.dim, r = kMaxBlockRows, in = kMaxRowsPerMessage;
    const int64_t query = static_cast<int64_t>(plan.heads.count()) * c.head_dim;
    const auto floats = [&](int64_t count) { return ops.template Allocate<float>(index, count); };
    const auto stored = [&](int64_t count) { return ops.template Allocate<S>(index, count); };
    const int64_t step_bytes = StepMemory<Buffer<std::byte>>::ByteCount(c.tap_values());
    step = StepMemory(ops.template Allocate<std::byte>(index, step_bytes));
    insert_wide = floats(in * c.tap_values());
    main_x = floats(in * dim);
    insert_kv = floats(c.stages * in * c.head_dim);
    for (int stage = 0; stage < c.stages; ++stage) {
      rings.push_back(stored(int64_t{kSlotCount} * c.ring_rows() * c.head_dim));
    }
    streams = stored(r * kStreams * dim);
    pre = floats(r * kStreams);
    attn_mix = ops.template Allocate<MixCoefficients>(index, r);
    ffn_mix = ops.template Allocate<MixCoefficients>(index, r);
    x = floats(r * dim);
    query_latent = floats(r * c.q_lora_rank);
    query_rank = floats(r * c.q_lora_rank);
    q = floats(r * query);
    kv = floats(r * c.head_dim);
    block_kv = stored(r * c.head_dim);
    o = floats(r * query);
    z = floats(r * plan.groups.count() * c.o_lora_rank);
    partials = floats(plan.halves.count() * r * dim);
    y = stored(r * dim);
    router_logits = floats(r * c.experts);
    choices = ops.template Allocate<GateChoice>(index, r);
    collapse = floats(r * dim);
    hidden = floats(r * dim);
    base = floats(r * plan.vocab.count());
    best = ops.template Allocate<TopTwo>(index, kMaxRequests);
  }

  int64_t half_stride() const {
    return static_cast<int64_t>(partials.size()) / plan.halves.count();
  }

  int index;
  ShardPlan plan;
  RankWeights weights;
  StepMemory<Buffer<std::byte>> step;  // what operations read and write
  // Context insert.
  Buffer<float> insert_wide;     // [I, tap_values]
  Buffer<float> main_x;          // [I, dim]
  Buffer<float> insert_kv;       // [stages, I, head_dim]
  std::vector<Buffer<S>> rings;  // per stage [slots, ring_rows, head_dim]
  // Block.
  Buffer<S> streams;  // [R, 4, dim]
  Buffer<float> pre;  // [R, 4] weights of the next collapse that no mix provides
  Buffer<MixCoefficients> attn_mix, ffn_mix;  // [R]
  Buffer<float> x;                            // [R, dim] input of the sublayer, normed
  Buffer<float> query_latent, query_rank;     // [R, q_lora_rank] before and after q_norm
  Buffer<float> q, o;                         // [R, heads, head_dim]
  Buffer<float> kv;                           // [R, head_dim]
  Buffer<S> block_kv;                         // [R, head_dim]
  Buffer<float> z;                            // [R, groups, o_lora_rank]
  Buffer<float> partials;                     // [halves, R, dim]
  Buffer<S> y;                                // [R, dim]
  Buffer<float> router_logits;                // [R, experts]
  Buffer<GateChoice> choices;                 // [R]
  // Head.
  Buffer<float> collapse, hidden;  // [R, dim], the first requests * n_out rows in use
  Buffer<float> base;              // [R, vocabulary], row request * n_out + i
  Buffer<TopTwo> best;             // [requests]
};

}  // namespace tp2
