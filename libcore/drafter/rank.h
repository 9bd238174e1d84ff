// One rank of the drafter: its part of the weights and all its working memory, allocated once from
// the sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "libcore/model/drafter_config.h"
#include "libcore/ops/op_args.h"
#include "libcore/ops/op_set.h"
#include "libcore/shard/rank_weights.h"
#include "libcore/shard/shard_plan.h"

namespace tp2 {

inline constexpr int kMaxBlockRows = kMaxRequests * kBlockRows;
inline constexpr int kTokensPerRequest = kBlockRows + 1;  // the anchor and the drafts after it

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
    insert_rows = ops.template Allocate<Bf16>(index, in * c.tap_values());
    insert_wide = floats(in * c.tap_values());
    main_x = floats(in * dim);
    insert_kv = floats(in * c.head_dim);
    insert_positions = ops.template Allocate<int64_t>(index, in);
    insert_out_rows = ops.template Allocate<int32_t>(index, in);
    for (int stage = 0; stage < c.stages; ++stage) {
      rings.push_back(stored(int64_t{kSlotCount} * c.ring_rows() * c.head_dim));
    }
    block_ids = ops.template Allocate<int32_t>(index, r);
    block_positions = ops.template Allocate<int64_t>(index, r);
    block_out_rows = ops.template Allocate<int32_t>(index, r);
    windows = ops.template Allocate<WindowRows>(index, kMaxRequests);
    streams = stored(r * kStreams * dim);
    pre = floats(r * kStreams);
    attn_mix = ops.template Allocate<MixCoefficients>(index, r);
    ffn_mix = ops.template Allocate<MixCoefficients>(index, r);
    x = floats(r * dim);
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
    tokens = ops.template Allocate<int32_t>(index, kMaxRequests * kTokensPerRequest);
    best = ops.template Allocate<TopTwo>(index, kMaxRequests);
    runner_up = ops.template Allocate<int32_t>(index, r);
    margin = floats(r);
    confidence = floats(r);
  }

  int64_t half_stride() const {
    return static_cast<int64_t>(partials.size()) / plan.halves.count();
  }

  int index;
  ShardPlan plan;
  RankWeights weights;
  // Context insert.
  Buffer<Bf16> insert_rows;          // [I, tap_values]
  Buffer<float> insert_wide;         // [I, tap_values]
  Buffer<float> main_x;              // [I, dim]
  Buffer<float> insert_kv;           // [I, head_dim]
  Buffer<int64_t> insert_positions;  // [I]
  Buffer<int32_t> insert_out_rows;   // [I]
  std::vector<Buffer<S>> rings;      // per stage [slots, ring_rows, head_dim]
  // Block.
  Buffer<int32_t> block_ids;        // [R]
  Buffer<int64_t> block_positions;  // [R]
  Buffer<int32_t> block_out_rows;   // [R] 0, 1, 2, ...
  Buffer<WindowRows> windows;       // [requests]
  Buffer<S> streams;                // [R, 4, dim]
  Buffer<float> pre;                // [R, 4] weights of the next collapse that no mix provides
  Buffer<MixCoefficients> attn_mix, ffn_mix;  // [R]
  Buffer<float> x;                            // [R, dim] input of the sublayer, normed
  Buffer<float> query_rank;                   // [R, q_lora_rank]
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
  Buffer<int32_t> tokens;          // [requests, 6] anchor, drafts
  Buffer<TopTwo> best;             // [requests]
  Buffer<int32_t> runner_up;       // [requests, kBlockRows]
  Buffer<float> margin;            // [requests, kBlockRows]
  Buffer<float> confidence;        // [requests, kBlockRows]
};

}  // namespace tp2
