// One plain struct per operation: pointers with shapes, sizes, nothing else. The same structs
// describe an operation to every op set; `S` is the storage type of values that are kept or sent
// whole (Bf16 in the product; float in the CPU op set's test variant without storage roundings).
// Conventions: row-major, contiguous unless a stride is named; outputs never alias inputs unless
// said so; a row's result depends on that row alone. Formulas: libcore/math and research note
// dspark-model, sections 3 to 8.
#pragma once

#include <cstdint>

#include "libcore/checkpoint/weights.h"
#include "libcore/exl3/matrix.h"
#include "libcore/math/argmax.h"
#include "libcore/math/bf16.h"
#include "libcore/math/gate.h"
#include "libcore/math/mixing.h"
#include "libcore/model/drafter_config.h"
#include "libcore/ops/window_rows.h"
#include "libcore/shard/rank_weights.h"

namespace tp2 {

// Picks `take` rows out of every `of`: row i of the result is source row (i / take) * of + i %
// take.
struct RowPick {
  int take = 1;
  int of = 1;
  int Source(int i) const { return i / take * of + i % take; }
};

// out = fp32(in).
struct WidenArgs {
  const Bf16* in = nullptr;  // [count]
  int64_t count = 0;
  float* out = nullptr;  // [count]
};

// y = x W, exact integer path for mul1 (exl3/linear.h). One operation takes several products, which
// share launches where their k and rows are equal; none reads what another one writes.
struct LinearOpArgs {
  const exl3::MatrixView* matrix = nullptr;
  const float* x = nullptr;  // [rows, k]
  int64_t x_stride = 0;
  int rows = 0;
  float* y = nullptr;  // [rows, n], row stride n
};

// y = weight * (x * rsqrt(mean(x^2) + eps)).
struct RmsNormArgs {
  const float* x = nullptr;  // [rows, columns]
  Half16View weight;         // [columns]
  float eps = 0;
  int rows = 0;
  int columns = 0;
  float* y = nullptr;  // [rows, columns]; may be x
};

// The tail of every KV row: rotate the last rope_dims at the row's position, fake-quantize, store.
template <class S>
struct KvFinishArgs {
  const float* x = nullptr;            // [rows, head_dim], after kv_norm
  const int64_t* positions = nullptr;  // [rows]
  int rows = 0;
  S* out = nullptr;  // [any, head_dim]
  const int32_t* out_rows =
      nullptr;  // [rows] row of `out` that takes this row; -1: it is written nowhere
};

// v4: weightless RMSNorm per head; both: rotate the last rope_dims of every head. In place.
struct QueryFinishArgs {
  float* q = nullptr;                  // [rows, heads, head_dim]
  const int64_t* positions = nullptr;  // [rows]
  int rows = 0;
  int heads = 0;
};

// h[row][stream] = embed[ids[row]] for all four streams; pre = (1, 0, 0, 0).
template <class S>
struct EmbedArgs {
  const int32_t* ids = nullptr;  // [rows]
  int rows = 0;
  Half16View embed;      // [vocab, dim]
  S* streams = nullptr;  // [rows, 4, dim]
  float* pre = nullptr;  // [rows, 4]
};

template <class S>
struct MixArgs {
  const S* streams = nullptr;  // [rows, 4, dim]
  MixWeights weights;
  int rows = 0;
  MixCoefficients* mix = nullptr;  // [rows]
};

// v4's learned collapse in front of the head: pre[i] = sigmoid(...) + hc_eps for the four streams.
template <class S>
struct HeadMixArgs {
  const S* streams = nullptr;  // [rows, 4, dim]
  const float* fn = nullptr;   // [4, 4*dim]
  const float* base = nullptr;
  const float* scale = nullptr;
  int rows = 0;
  float* pre = nullptr;  // [rows, 4]
};

// x[i] = sum_s weights[source][s] * streams[source][s], source = pick.Source(i).
template <class S>
struct CollapseArgs {
  const S* streams = nullptr;      // [source rows, 4, dim]
  const float* weights = nullptr;  // [source rows, 4], row stride `weight_stride`
  int64_t weight_stride = 0;
  RowPick pick = {};
  int rows = 0;        // of the result
  float* x = nullptr;  // [rows, dim]
};

// streams[j] = store(post[j] * y + sum_i comb[i][j] * streams[i]), in place.
template <class S>
struct UpdateArgs {
  S* streams = nullptr;  // [rows, 4, dim]
  const S* y = nullptr;  // [rows, dim]
  const MixCoefficients* mix = nullptr;
  int rows = 0;
};

// Sink attention with one shared K = V row per key, then the inverse rotation. Keys: the request's
// window in ascending position, then its kBlockRows block rows; every row of the block sees all of
// them.
template <class S>
struct AttentionArgs {
  const float* q = nullptr;  // [requests * kBlockRows, heads, head_dim]
  const S* rings = nullptr;  // [slots, ring_rows, head_dim]; position p lies in row p % ring_rows
  const WindowRows* windows = nullptr;  // [requests]
  const S* block_kv = nullptr;          // [requests * kBlockRows, head_dim]
  const float* sink = nullptr;          // [heads]
  const int64_t* positions = nullptr;   // [requests * kBlockRows]
  int requests = 0;
  int heads = 0;
  float* o = nullptr;  // as q
};

// z_g = wo_a[g] . o of group g's heads.
struct GroupedOutputArgs {
  const float* o = nullptr;  // [rows, groups, group_inputs]
  const OutputProjection* wo_a = nullptr;
  int rows = 0;
  int groups = 0;
  float* z = nullptr;  // [rows, groups, o_lora_rank]
};

struct RouterArgs {
  const float* x = nullptr;  // [rows, dim]
  Half16View gate;           // [experts, dim]
  const float* bias = nullptr;
  int rows = 0;
  float* logits = nullptr;        // [rows, experts]
  GateChoice* choices = nullptr;  // [rows]
  // Whose Experts come next, with this x and these choices as they are: an op set may begin their
  // work here. Null: nobody's.
  const RankStage* stage = nullptr;
};

// partials[half][row] = sum over chosen experts in ascending id of w2(SwiGLU(w1 x, w3 x) * weight),
// then + shared. The gate weight multiplies the activation before w2, as the reference does.
struct ExpertsArgs {
  const float* x = nullptr;  // [rows, dim]
  const GateChoice* choices = nullptr;
  const RankStage* stage = nullptr;
  int rows = 0;
  float* partials = nullptr;  // [halves, rows capacity, dim]
  int64_t half_stride = 0;    // elements between halves
};

// Between two sublayers, each part only where its pointers are given, in this order: AllReduce of a
// rank that has both halves, Update with the last sublayer's output, Mix for the next one, Collapse
// of the picked rows, RmsNorm.
template <class S>
struct EnterArgs {
  S* streams = nullptr;  // [rows, 4, dim]
  int rows = 0;
  // AllReduce into y.
  const float* partials = nullptr;  // [2, rows, dim]
  int64_t half_stride = 0;
  // Update.
  S* y = nullptr;  // [rows, dim]
  const MixCoefficients* update = nullptr;
  // Mix. With v41, whose Collapse does not need it, an op set may leave it to the operations
  // behind: it is there for the next Enter, and after Wait.
  MixWeights mix_weights = {};
  MixCoefficients* mix = nullptr;  // [rows]
  // Collapse and norm.
  const float* pre = nullptr;  // [rows, 4], row stride pre_stride; v4: inside `mix`
  int64_t pre_stride = 0;
  RowPick pick = {};
  int picked_rows = 0;
  Half16View norm = {};        // [dim]
  float* collapsed = nullptr;  // [picked_rows, dim] before the norm; may be null
  float* x = nullptr;          // [picked_rows, dim]
};

// From the two latents of an attention to its queries and its block rows: norm and wq_b of the one,
// norm and KvFinish of the other.
template <class S>
struct LatentArgs {
  RmsNormArgs query_norm;  // y is not x
  LinearOpArgs wq_b;       // of query_norm.y
  RmsNormArgs kv_norm;     // in place
  KvFinishArgs<S> kv_finish;
};

// QueryFinish, then Attention with what it finishes.
template <class S>
struct AttendArgs {
  QueryFinishArgs queries;
  AttentionArgs<S> attention;  // q is queries.q, positions are the same
};

// y = store(partial of half 0 + partial of half 1), the only place where halves meet.
template <class S>
struct AllReduceArgs {
  const float* partials = nullptr;  // this rank's [halves, rows, dim]
  int64_t half_stride = 0;
  int rows = 0;
  S* y = nullptr;  // [rows, dim]
};

// Merges the ranks' best two; writes the winner where the next Markov step reads it. runner_up and
// margin are null together: then only the best counts.
struct ExchangeArgs {
  const TopTwo* best = nullptr;  // this rank's [requests]
  int requests = 0;
  int32_t* token = nullptr;  // [requests], stride token_stride
  int64_t token_stride = 1;
  int32_t* runner_up = nullptr;  // [requests], stride result_stride
  float* margin = nullptr;       // [requests], stride result_stride: best minus second best score
  int64_t result_stride = 1;
};

// score[v] = base[v] + store(markov_head[v] . markov_embed[previous]) over the rank's vocabulary,
// best two of it. A rank that has the whole vocabulary chooses at once.
struct MarkovArgs {
  const float* base = nullptr;  // request r's logits at base + r * base_stride, [rank vocabulary]
  int64_t base_stride = 0;
  const int32_t* previous = nullptr;  // [requests], stride previous_stride
  int64_t previous_stride = 1;
  Half16View embed;     // [vocab, rank]
  Half16View head;      // [rank vocabulary, rank]
  int vocab_begin = 0;  // token of base[0]
  int requests = 0;
  bool wants_second = true;  // without it TopTwo::second means nothing
  TopTwo* best = nullptr;    // [requests]
  float* bias =
      nullptr;  // null, or [requests, rank vocabulary]: where to leave the unrounded bias rows
  ExchangeArgs choice = {};  // of this `best`, behind it; no token: the ranks exchange theirs first
};

// c = w . [xc, markov_embed[fed token]], fp32, raw logit.
struct ConfidenceArgs {
  const float* xc = nullptr;     // row i of request r at (r * n_out + i) * dim
  const int32_t* fed = nullptr;  // token fed into row i of request r at r * fed_stride + i
  int64_t fed_stride = 0;
  Half16View weight;  // [1, dim + rank]
  Half16View embed;   // [vocab, rank]
  int requests = 0;
  int n_out = 0;
  float* logits = nullptr;  // [requests, kBlockRows]
};

}  // namespace tp2
