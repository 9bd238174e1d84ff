// One operation at a time with the golden run's own inputs, for every round that was stored in
// full: the comparison in which a misplaced rounding, a missing Sinkhorn step or a clamp on the
// wrong side cannot hide. Bounds: the "one operation with golden inputs" rows of
// tests/golden/v41-tiny/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "libcore/base/check.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/ops/cpu/canonical_matvec.h"
#include "libcore/ops/cpu/cpu_ops.h"
#include "libcore/ops/cpu/storage.h"
#include "libcore/shard/rank_weights.h"
#include "tests/support/golden.h"

namespace tp2 {
namespace {

struct OpBounds {
  const char* file;
  KvFakeQuant kv_fake_quant;
  double linear_rel;
  double experts_rel;
  double rows_rel;  // K rows
  double base_logits_rel;
  double stored_rel;  // other results that are 16-bit in the golden file
  double exact_max;   // results that are fp32 in both
};

constexpr OpBounds kF32 = {.file = "golden_f32.safetensors",
                           .kv_fake_quant = KvFakeQuant::kNone,
                           .linear_rel = 7e-4,
                           .experts_rel = 1.3e-3,
                           .rows_rel = 7e-4,
                           .base_logits_rel = 7e-4,
                           .stored_rel = 3e-6,
                           .exact_max = 3e-6};
// K rows in e4m3: a linear's error moves values over rounding boundaries; README's bound for the
// bf16 setting.
constexpr OpBounds kF32FakeQuant = {.file = "golden_f32_fq.safetensors",
                                    .kv_fake_quant = KvFakeQuant::kReference,
                                    .linear_rel = 7e-4,
                                    .experts_rel = 1.3e-3,
                                    .rows_rel = 5e-2,
                                    .base_logits_rel = 7e-4,
                                    .stored_rel = 3e-6,
                                    .exact_max = 3e-6};
constexpr OpBounds kBf16 = {.file = "golden_bf16.safetensors",
                            .kv_fake_quant = KvFakeQuant::kReference,
                            .linear_rel = 1e-2,
                            .experts_rel = 1.5e-2,
                            .rows_rel = 5e-2,
                            .base_logits_rel = 5e-3,
                            .stored_rel = 5e-3,
                            .exact_max = 4e-6};

// Storage type S runs the operations; golden inputs are exact in it.
template <class S>
class OpComparison {
 public:
  OpComparison(const OpBounds& bounds, const GoldenRound& round)
      : bounds_(bounds), round_(round), golden_(bounds.file), inputs_("inputs.safetensors") {
    auto checkpoint = Checkpoint::Open(kGoldenDir);
    TP2_CHECK(checkpoint.ok());
    checkpoint_ = std::move(*checkpoint);
    config_ = checkpoint_->config();
    config_.kv_fake_quant = bounds.kv_fake_quant;
    weights_ = CutWeights(config_, checkpoint_->weights(), *MakeShardPlan(config_, 1, 0));
    ops_ = std::make_unique<CpuOps<S>>(config_, 1, 1);
    for (int row = 0; row < kBlockRows; ++row) {
      positions_.push_back(round.position + round.row_count + row);
      out_rows_.push_back(row);
    }
  }

  void CompareAll() {
    CompareInsert();
    for (int stage = 0; stage < config_.stages; ++stage) {
      CompareMixes(stage);
      CompareAttention(stage);
      CompareFfn(stage);
    }
    CompareHead();
  }

 private:
  std::vector<float> Golden(const std::string& name) const {
    return golden_.Floats(round_.name + "." + name);
  }
  std::vector<S> Stored(const std::vector<float>& values) const {
    std::vector<S> stored;
    for (const float value : values) stored.push_back(Storage<S>::Store(value));
    return stored;
  }
  static std::vector<float> Loaded(const std::vector<S>& values) {
    std::vector<float> loaded;
    for (const S value : values) loaded.push_back(Storage<S>::Load(value));
    return loaded;
  }
  void ExpectRel(const std::string& name, const std::vector<float>& got, double bound) const {
    EXPECT_LE(RelativeError(got, Golden(name)), bound)
        << bounds_.file << " " << round_.name << "." << name;
  }
  void ExpectMax(const std::string& name, const std::vector<float>& got, double bound) const {
    EXPECT_LE(MaxError(got, Golden(name)), bound)
        << bounds_.file << " " << round_.name << "." << name;
  }
  std::vector<float> Linear(const exl3::MatrixView& matrix, const std::vector<float>& x, int rows) {
    std::vector<float> y(static_cast<size_t>(rows) * matrix.n);
    const LinearOpArgs product = {&matrix, x.data(), matrix.k, rows, y.data()};
    ops_->Linear(0, {&product, 1});
    return y;
  }
  std::vector<float> Norm(std::vector<float> x, Half16View weight, int rows) {
    ops_->RmsNorm(0, {x.data(), weight, config_.norm_eps, rows, weight.columns, x.data()});
    return x;
  }
  std::vector<float> KvRows(const std::vector<float>& x, int stage,
                            const std::vector<int64_t>& positions) {
    const int rows = static_cast<int>(positions.size());
    const RankStage& weights = weights_.stages[stage];
    const std::vector<float> k = Norm(Linear(weights.wkv, x, rows), weights.kv_norm, rows);
    std::vector<S> out(k.size());
    std::vector<int32_t> out_rows;
    for (int row = 0; row < rows; ++row) out_rows.push_back(row);
    ops_->KvFinish(0, {k.data(), positions.data(), rows, out.data(), out_rows.data()});
    return Loaded(out);
  }
  static std::string At(int stage, const char* name) {
    return "s" + std::to_string(stage) + "." + name;
  }

  void CompareInsert() {
    std::vector<float> taps;
    const std::vector<Bf16> stored = inputs_.Bf16s(round_.request + ".taps");
    const int values = config_.tap_values();
    for (int i = 0; i < round_.row_count * values; ++i) {
      taps.push_back(ToFloat(stored[static_cast<int64_t>(round_.first_row) * values + i]));
    }
    const int rows = round_.row_count;
    ExpectRel("main_x", Norm(Linear(weights_.main_proj, taps, rows), weights_.main_norm, rows),
              bounds_.linear_rel);
    std::vector<int64_t> positions;
    for (int i = 0; i < rows; ++i) positions.push_back(round_.position + i);
    for (int stage = 0; stage < config_.stages; ++stage) {
      // The newest rows of the golden ring are those of this insert.
      const std::vector<float> got = KvRows(Golden("main_x"), stage, positions);
      const std::vector<float> ring = Golden(At(stage, "ring"));
      const size_t shared = std::min(got.size(), ring.size());
      EXPECT_LE(RelativeError({got.end() - shared, got.end()}, {ring.end() - shared, ring.end()}),
                bounds_.rows_rel)
          << round_.name << " ring of stage " << stage;
    }
  }

  std::vector<S> StreamsInto(int stage) {
    if (stage > 0) return Stored(Golden(At(stage - 1, "streams")));
    std::vector<int32_t> ids(kBlockRows, config_.noise_token);
    ids[0] = round_.anchor;
    std::vector<S> streams(static_cast<size_t>(kBlockRows) * kStreams * config_.dim);
    std::vector<float> pre(kBlockRows * kStreams);
    ops_->Embed(0, {ids.data(), kBlockRows, weights_.embed, streams.data(), pre.data()});
    return streams;
  }

  void CompareMix(int stage, const std::string& sublayer, const std::vector<S>& streams,
                  const MixWeights& weights) {
    std::vector<MixCoefficients> mix(kBlockRows);
    ops_->Mix(0, {streams.data(), weights, kBlockRows, mix.data()});
    std::vector<float> pre, post, comb;
    for (const MixCoefficients& row : mix) {
      pre.insert(pre.end(), row.pre, row.pre + kStreams);
      post.insert(post.end(), row.post, row.post + kStreams);
      comb.insert(comb.end(), &row.comb[0][0], &row.comb[0][0] + kStreams * kStreams);
    }
    const std::string name = At(stage, sublayer.c_str());
    ExpectMax(name + "_pre", pre, bounds_.exact_max);
    ExpectMax(name + "_post", post, bounds_.exact_max);
    ExpectMax(name + "_comb", comb, bounds_.exact_max);
  }

  std::vector<MixCoefficients> GoldenMix(int stage, const char* sublayer) const {
    const std::string name = At(stage, sublayer);
    const std::vector<float> pre = Golden(name + "_pre"), post = Golden(name + "_post"),
                             comb = Golden(name + "_comb");
    std::vector<MixCoefficients> mix(kBlockRows);
    for (int row = 0; row < kBlockRows; ++row) {
      std::copy_n(pre.begin() + row * kStreams, kStreams, mix[row].pre);
      std::copy_n(post.begin() + row * kStreams, kStreams, mix[row].post);
      std::copy_n(comb.begin() + row * kStreams * kStreams, kStreams * kStreams,
                  &mix[row].comb[0][0]);
    }
    return mix;
  }

  std::vector<float> Enter(const std::vector<S>& streams, const std::vector<float>& pre,
                           Half16View norm) {
    std::vector<float> x(static_cast<size_t>(kBlockRows) * config_.dim);
    ops_->Collapse(0, {streams.data(), pre.data(), kStreams, RowPick{}, kBlockRows, x.data()});
    return norm.bits == nullptr ? x : Norm(x, norm, kBlockRows);
  }

  std::vector<float> Updated(std::vector<S> streams, const std::vector<float>& y,
                             const std::vector<MixCoefficients>& mix) {
    const std::vector<S> stored = Stored(y);
    ops_->Update(0, {streams.data(), stored.data(), mix.data(), kBlockRows});
    return Loaded(streams);
  }

  void CompareMixes(int stage) {
    const RankStage& weights = weights_.stages[stage];
    const std::vector<S> before = StreamsInto(stage);
    CompareMix(stage, "attn", before, weights.attn_mix);
    std::vector<float> pre(kBlockRows * kStreams, 0.0f);
    for (int row = 0; row < kBlockRows; ++row) pre[row * kStreams] = 1.0f;
    if (stage > 0) pre = Golden(At(stage - 1, "ffn_pre"));
    ExpectRel(At(stage, "attn_in"), Enter(before, pre, weights.attn_norm), bounds_.stored_rel);
    if (!golden_.Has(round_.name + "." + At(stage, "streams_attn"))) return;
    const std::vector<S> after = Stored(Golden(At(stage, "streams_attn")));
    ExpectRel(At(stage, "streams_attn"),
              Updated(before, Golden(At(stage, "attn_out")), GoldenMix(stage, "attn")),
              bounds_.stored_rel);
    CompareMix(stage, "ffn", after, weights.ffn_mix);
    ExpectRel(At(stage, "ffn_in"), Enter(after, Golden(At(stage, "attn_pre")), weights.ffn_norm),
              bounds_.stored_rel);
    ExpectRel(At(stage, "streams"),
              Updated(after, Golden(At(stage, "ffn_out")), GoldenMix(stage, "ffn")),
              bounds_.stored_rel);
  }

  void CompareAttention(int stage) {
    const RankStage& weights = weights_.stages[stage];
    const std::vector<float> x = Golden(At(stage, "attn_in"));
    ExpectRel(At(stage, "qr"),
              Norm(Linear(weights.wq_a, x, kBlockRows), weights.q_norm, kBlockRows),
              bounds_.linear_rel);
    std::vector<float> q = Linear(weights.wq_b, Golden(At(stage, "qr")), kBlockRows);
    ops_->QueryFinish(0, {q.data(), positions_.data(), kBlockRows, config_.heads});
    ExpectRel(At(stage, "q"), q, bounds_.linear_rel);
    ExpectRel(At(stage, "k_block"), KvRows(x, stage, positions_), bounds_.rows_rel);

    const std::vector<float> window = Golden(At(stage, "ring"));
    const int window_rows = static_cast<int>(window.size()) / config_.head_dim;
    const WindowRows rows = {positions_[0] - window_rows, 0, window_rows};
    std::vector<S> ring(static_cast<size_t>(config_.ring_rows()) * config_.head_dim);
    for (int i = 0; i < window_rows; ++i) {
      const int64_t at = (rows.begin + i) % config_.ring_rows();
      for (int d = 0; d < config_.head_dim; ++d) {
        ring[at * config_.head_dim + d] = Storage<S>::Store(window[i * config_.head_dim + d]);
      }
    }
    const std::vector<float> golden_q = Golden(At(stage, "q"));
    const std::vector<S> block = Stored(Golden(At(stage, "k_block")));
    std::vector<float> o(golden_q.size());
    ops_->Attention(0, {golden_q.data(), ring.data(), &rows, block.data(), weights.attn_sink,
                        positions_.data(), 1, config_.heads, o.data()});
    ExpectRel(At(stage, "o"), o, bounds_.stored_rel);
    const std::vector<float> golden_o = Golden(At(stage, "o"));
    std::vector<float> z(static_cast<size_t>(kBlockRows) * config_.output_values());
    ops_->GroupedOutput(0,
                        {golden_o.data(), &weights.wo_a, kBlockRows, config_.o_groups, z.data()});
    ExpectRel(At(stage, "z"), z, bounds_.stored_rel);
    CompareHalves(stage, Golden(At(stage, "z")));
  }

  void CompareHalves(int stage, const std::vector<float>& z) {
    const int64_t half_values = static_cast<int64_t>(kBlockRows) * config_.dim;
    std::vector<float> partials(2 * half_values);
    int begin = 0;
    for (int half = 0; half < kHalves; ++half) {
      const exl3::MatrixView& wo_b = weights_.stages[stage].wo_b[half];
      const LinearOpArgs product = {&wo_b, z.data() + begin, config_.output_values(), kBlockRows,
                                    partials.data() + half * half_values};
      ops_->Linear(0, {&product, 1});
      begin += wo_b.k;
    }
    std::vector<S> y(half_values);
    const AllReduceArgs<S> sum = {partials.data(), half_values, kBlockRows, y.data()};
    ops_->AllReduce({&sum, 1});
    ExpectRel(At(stage, "attn_out"), Loaded(y), bounds_.linear_rel);
  }

  // Sum of the experts' two halves with `top_k` routed experts.
  std::vector<double> ExpertSum(int stage, const std::vector<float>& x,
                                const std::vector<GateChoice>& choices, int top_k) {
    DrafterConfig config = config_;
    config.experts_per_token = top_k;
    CpuOps<S> ops(config, 1, 1);
    const int64_t half_values = static_cast<int64_t>(kBlockRows) * config_.dim;
    std::vector<float> partials(2 * half_values);
    ops.Experts(0, {x.data(), choices.data(), &weights_.stages[stage], kBlockRows, partials.data(),
                    half_values});
    std::vector<double> sum;
    for (int64_t i = 0; i < half_values; ++i) {
      sum.push_back(static_cast<double>(partials[i]) + partials[half_values + i]);
    }
    return sum;
  }

  void CompareFfn(int stage) {
    const RankStage& weights = weights_.stages[stage];
    const std::vector<float> x = Golden(At(stage, "ffn_in"));
    std::vector<float> logits(static_cast<size_t>(kBlockRows) * config_.experts);
    std::vector<GateChoice> choices(kBlockRows);
    ops_->Router(
        0, {x.data(), weights.gate, weights.gate_bias, kBlockRows, logits.data(), choices.data()});
    ExpectMax(At(stage, "router_logits"), logits, bounds_.exact_max);
    std::vector<float> ids, gate_weights;
    for (const GateChoice& choice : choices) {
      ids.insert(ids.end(), choice.experts, choice.experts + 3);
      gate_weights.insert(gate_weights.end(), choice.weights, choice.weights + 3);
    }
    EXPECT_EQ(ids, Golden(At(stage, "route_ids"))) << round_.name;
    ExpectMax(At(stage, "route_weights"), gate_weights, bounds_.exact_max);
    const std::vector<double> shared = ExpertSum(stage, x, choices, 0);
    const std::vector<double> all = ExpertSum(stage, x, choices, 3);
    std::vector<float> routed;
    for (size_t i = 0; i < all.size(); ++i)
      routed.push_back(static_cast<float>(all[i] - shared[i]));
    ExpectRel(At(stage, "shared"), {shared.begin(), shared.end()}, bounds_.experts_rel);
    ExpectRel(At(stage, "routed"), routed, bounds_.experts_rel);
    ExpectRel(At(stage, "ffn_out"), {all.begin(), all.end()}, bounds_.experts_rel);
  }

  void CompareHead() {
    const std::vector<S> streams = Stored(Golden(At(config_.stages - 1, "streams")));
    ExpectRel("collapse", Enter(streams, Golden(At(config_.stages - 1, "ffn_pre")), {}),
              bounds_.stored_rel);
    const std::vector<float> collapse = Golden("collapse");
    ExpectRel("hidden", Norm(collapse, weights_.final_norm, kBlockRows), bounds_.stored_rel);
    ExpectRel("base_logits", Linear(weights_.head, Golden("hidden"), kBlockRows),
              bounds_.base_logits_rel);
    std::vector<int32_t> fed = {round_.anchor};
    for (const int32_t draft : golden_.Ints(round_.name + ".drafts")) fed.push_back(draft);
    std::vector<float> confidence(kBlockRows);
    ops_->Confidence(0, {collapse.data(), fed.data(), 6, weights_.confidence, weights_.markov_embed,
                         1, kBlockRows, confidence.data()});
    ExpectMax("confidence", confidence, bounds_.exact_max);
    CompareMarkov(fed);
  }

  void CompareMarkov(const std::vector<int32_t>& fed) {
    const std::vector<float> base = Golden("base_logits");
    std::vector<float> bias(static_cast<size_t>(kBlockRows) * config_.vocab), values;
    std::vector<float> ids;
    for (int i = 0; i < kBlockRows; ++i) {
      TopTwo best;
      ops_->Markov(0, {.base = base.data() + static_cast<int64_t>(i) * config_.vocab,
                       .previous = &fed[i],
                       .embed = weights_.markov_embed,
                       .head = weights_.markov_head,
                       .requests = 1,
                       .best = &best,
                       .bias = bias.data() + static_cast<int64_t>(i) * config_.vocab});
      ids.insert(ids.end(),
                 {static_cast<float>(best.first.token), static_cast<float>(best.second.token)});
      values.insert(values.end(), {best.first.score, best.second.score});
    }
    if (golden_.Has(round_.name + ".markov_bias")) ExpectMax("markov_bias", bias, 3e-7);
    // The product rounds the bias to bf16 as a cached row would be: half a bf16 step of a bias of
    // about 1.
    const double value_bound = std::is_same_v<S, float> ? bounds_.exact_max : 2e-3;
    ExpectMax("top2_values", values, value_bound);
    if (std::is_same_v<S, float>) {
      EXPECT_EQ(ids, Golden("top2_ids")) << round_.name;
    }
  }

  OpBounds bounds_;
  GoldenRound round_;
  GoldenTensors golden_, inputs_;
  std::unique_ptr<Checkpoint> checkpoint_;
  DrafterConfig config_;
  RankWeights weights_;
  std::unique_ptr<CpuOps<S>> ops_;
  std::vector<int64_t> positions_;
  std::vector<int32_t> out_rows_;
};

template <class S>
void CompareStoredRounds(const OpBounds& bounds, int expected_rounds) {
  const GoldenTensors golden(bounds.file);
  const GoldenTensors inputs("inputs.safetensors");
  int compared = 0;
  for (const GoldenRound& round : GoldenRounds(inputs)) {
    if (!golden.Has(round.name + ".collapse")) continue;
    OpComparison<S>(bounds, round).CompareAll();
    ++compared;
  }
  EXPECT_EQ(compared, expected_rounds);
}

TEST(GoldenOps, EveryOperationAgreesWithF32) { CompareStoredRounds<float>(kF32, 4); }

TEST(GoldenOps, EveryOperationAgreesWithF32AndFakeQuantization) {
  CompareStoredRounds<float>(kF32FakeQuant, 1);
}

TEST(GoldenOps, EveryOperationOfTheProductAgreesWithBf16) { CompareStoredRounds<Bf16>(kBf16, 3); }

}  // namespace
}  // namespace tp2
