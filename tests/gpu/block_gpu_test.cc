// Row-wise operations, routing and experts: the CUDA op set gives the bits of the CPU's, for 1 to 4
// requests on every small shape.
#include <gtest/gtest.h>

#include "tests/gpu/gpu_twin.h"
#include "tests/gpu/op_pair.h"

namespace tp2 {
namespace {

class BlockGpuTest : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void SetUp() override {
    TP2_NEEDS_GPU();
    ops_ = &GetOpPair(std::get<0>(GetParam()), 1, 0);
    rows_ = std::get<1>(GetParam()) * kBlockRows;
    dim_ = ops_->config.dim;
    rng_ = Rng(static_cast<uint64_t>(rows_));
  }
  const RankStage& host() const { return ops_->host.stages[1]; }
  const RankStage& card() const { return ops_->card.stages[1]; }
  Twin<float> Floats(int64_t count, float unit = 1.0f) {
    return MakeTwin(RandomFloats(rng_, count, unit));
  }
  Twin<Bf16> Stored(int64_t count) { return MakeTwin(RandomBf16s(rng_, count)); }
  Twin<int64_t> Positions() {
    std::vector<int64_t> positions;
    for (int i = 0; i < rows_; ++i) positions.push_back(static_cast<int64_t>(rng_.Below(70000)));
    return MakeTwin(std::move(positions));
  }
  Twin<MixCoefficients> Mixes() {
    std::vector<MixCoefficients> mixes(static_cast<size_t>(rows_));
    for (MixCoefficients& mix : mixes) {
      for (int i = 0; i < kStreams; ++i) {
        mix.pre[i] = rng_.Signed();
        mix.post[i] = rng_.Signed();
        for (float& entry : mix.comb[i]) entry = rng_.Signed();
      }
    }
    return MakeTwin(std::move(mixes));
  }

  OpPair* ops_ = nullptr;
  int rows_ = 0;
  int dim_ = 0;
  Rng rng_{0};
};

TEST_P(BlockGpuTest, WidenAgrees) {
  const Twin<Bf16> in = Stored(int64_t{rows_} * 3 * dim_ + 1);
  Twin<float> out = OutputTwin<float>(int64_t{rows_} * 3 * dim_ + 1);
  const int64_t count = static_cast<int64_t>(in.host.size());
  ops_->cpu->Widen(0, {in.host.data(), count, out.host.data()});
  ops_->cuda->Widen(0, {in.card.data(), count, out.card.data()});
  EXPECT_TRUE(SameBits(out));
}

TEST_P(BlockGpuTest, RmsNormAgreesAlsoInPlace) {
  const Twin<float> x = Floats(int64_t{rows_} * dim_);
  Twin<float> y = OutputTwin<float>(int64_t{rows_} * dim_);
  const float eps = ops_->config.norm_eps;
  ops_->cpu->RmsNorm(0, {x.host.data(), host().attn_norm, eps, rows_, dim_, y.host.data()});
  ops_->cuda->RmsNorm(0, {x.card.data(), card().attn_norm, eps, rows_, dim_, y.card.data()});
  EXPECT_TRUE(SameBits(y));
  ops_->cpu->RmsNorm(0, {y.host.data(), host().ffn_norm, eps, rows_, dim_, y.host.data()});
  ops_->cuda->RmsNorm(0, {y.card.data(), card().ffn_norm, eps, rows_, dim_, y.card.data()});
  EXPECT_TRUE(SameBits(y)) << "in place";
}

TEST_P(BlockGpuTest, KvFinishAgreesAndSkipsRowsWithoutPlace) {
  const int dims = ops_->config.head_dim;
  const Twin<float> x = Floats(int64_t{rows_} * dims, 30.0f);
  const Twin<int64_t> positions = Positions();
  std::vector<int32_t> places;
  for (int i = 0; i < rows_; ++i) places.push_back(i % 3 == 2 ? -1 : rows_ - 1 - i);
  const Twin<int32_t> out_rows = MakeTwin(std::move(places));
  Twin<Bf16> out = MakeTwin(std::vector<Bf16>(static_cast<size_t>(rows_) * dims));
  ops_->cpu->KvFinish(
      0, {x.host.data(), positions.host.data(), rows_, out.host.data(), out_rows.host.data()});
  ops_->cuda->KvFinish(
      0, {x.card.data(), positions.card.data(), rows_, out.card.data(), out_rows.card.data()});
  EXPECT_TRUE(SameBits(out));
}

TEST_P(BlockGpuTest, QueryFinishAgrees) {
  const int heads = ops_->config.heads;
  Twin<float> q = Floats(int64_t{rows_} * heads * ops_->config.head_dim);
  const Twin<int64_t> positions = Positions();
  ops_->cpu->QueryFinish(0, {q.host.data(), positions.host.data(), rows_, heads});
  ops_->cuda->QueryFinish(0, {q.card.data(), positions.card.data(), rows_, heads});
  EXPECT_TRUE(SameBits(q));
}

TEST_P(BlockGpuTest, EmbedAgrees) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < rows_; ++i) {
    tokens.push_back(static_cast<int32_t>(rng_.Below(ops_->config.vocab)));
  }
  const Twin<int32_t> ids = MakeTwin(std::move(tokens));
  Twin<Bf16> streams = OutputTwin<Bf16>(int64_t{rows_} * kStreams * dim_);
  Twin<float> pre = OutputTwin<float>(int64_t{rows_} * kStreams);
  ops_->cpu->Embed(
      0, {ids.host.data(), rows_, ops_->host.embed, streams.host.data(), pre.host.data()});
  ops_->cuda->Embed(
      0, {ids.card.data(), rows_, ops_->card.embed, streams.card.data(), pre.card.data()});
  EXPECT_TRUE(SameBits(streams));
  EXPECT_TRUE(SameBits(pre));
}

TEST_P(BlockGpuTest, MixAgrees) {
  const Twin<Bf16> streams = Stored(int64_t{rows_} * kStreams * dim_);
  Twin<MixCoefficients> mix = OutputTwin<MixCoefficients>(rows_);
  ops_->cpu->Mix(0, {streams.host.data(), host().attn_mix, rows_, mix.host.data()});
  ops_->cuda->Mix(0, {streams.card.data(), card().attn_mix, rows_, mix.card.data()});
  EXPECT_TRUE(SameBits(mix));
}

TEST_P(BlockGpuTest, HeadMixAgrees) {
  if (ops_->host.head_mix_fn == nullptr) return;  // v41 has none
  const Twin<Bf16> streams = Stored(int64_t{rows_} * kStreams * dim_);
  Twin<float> pre = OutputTwin<float>(int64_t{rows_} * kStreams);
  const RankWeights &h = ops_->host, &c = ops_->card;
  ops_->cpu->HeadMix(0, {streams.host.data(), h.head_mix_fn, h.head_mix_base, h.head_mix_scale,
                         rows_, pre.host.data()});
  ops_->cuda->HeadMix(0, {streams.card.data(), c.head_mix_fn, c.head_mix_base, c.head_mix_scale,
                          rows_, pre.card.data()});
  EXPECT_TRUE(SameBits(pre));
}

TEST_P(BlockGpuTest, CollapseAgreesForEveryPick) {
  const Twin<Bf16> streams = Stored(int64_t{rows_} * kStreams * dim_);
  const Twin<MixCoefficients> mix = Mixes();
  const int64_t stride = sizeof(MixCoefficients) / sizeof(float);
  for (int take = 1; take <= kBlockRows; ++take) {
    const int picked = rows_ / kBlockRows * take;
    Twin<float> x = OutputTwin<float>(int64_t{picked} * dim_);
    const RowPick pick = {take, kBlockRows};
    ops_->cpu->Collapse(
        0, {streams.host.data(), mix.host.data()->pre, stride, pick, picked, x.host.data()});
    ops_->cuda->Collapse(0, {streams.card.data(), reinterpret_cast<const float*>(mix.card.data()),
                             stride, pick, picked, x.card.data()});
    EXPECT_TRUE(SameBits(x)) << "take " << take;
  }
}

TEST_P(BlockGpuTest, UpdateAgrees) {
  Twin<Bf16> streams = Stored(int64_t{rows_} * kStreams * dim_);
  const Twin<Bf16> y = Stored(int64_t{rows_} * dim_);
  const Twin<MixCoefficients> mix = Mixes();
  ops_->cpu->Update(0, {streams.host.data(), y.host.data(), mix.host.data(), rows_});
  ops_->cuda->Update(0, {streams.card.data(), y.card.data(), mix.card.data(), rows_});
  EXPECT_TRUE(SameBits(streams));
}

// The sum of halves, update, mix, collapse and norm in one: with each part left out once, and for
// every pick.
TEST_P(BlockGpuTest, EnterAgreesPartByPart) {
  Twin<Bf16> streams = Stored(int64_t{rows_} * kStreams * dim_);
  const int64_t half = int64_t{rows_} * dim_ + 4;
  const Twin<float> halves = Floats(2 * half);
  Twin<Bf16> y = Stored(int64_t{rows_} * dim_);
  const Twin<MixCoefficients> update = Mixes();
  Twin<MixCoefficients> mix = OutputTwin<MixCoefficients>(rows_);
  for (int take = 0; take <= kBlockRows; ++take) {
    const int picked = rows_ / kBlockRows * take;
    Twin<float> collapsed = OutputTwin<float>(int64_t{picked} * dim_ + 1);
    Twin<float> x = OutputTwin<float>(int64_t{picked} * dim_ + 1);
    const auto enter = [&](auto& ops, const RankStage& stage, Bf16* h, const float* partials,
                           Bf16* out, const MixCoefficients* old, MixCoefficients* next,
                           float* before, float* after) {
      EnterArgs<Bf16> args = {.streams = h, .rows = rows_};
      if (take != 1) args.y = out, args.update = old;
      if (take == 4) args.partials = partials, args.half_stride = half;
      if (take != 2) args.mix_weights = stage.ffn_mix, args.mix = next;
      if (take > 0) {
        const MixCoefficients* pre = ops_->config.arch == Arch::kV41 || take == 2 ? old : next;
        args.pre = reinterpret_cast<const float*>(pre);
        args.pre_stride = sizeof(MixCoefficients) / sizeof(float);
        args.pick = {take, kBlockRows};
        args.picked_rows = picked;
        args.norm = stage.ffn_norm;
        args.collapsed = take == 3 ? nullptr : before;
        args.x = after;
      }
      ops.Enter(0, args);
      ops.Wait(0);  // for the mix
    };
    enter(*ops_->cpu, host(), streams.host.data(), halves.host.data(), y.host.data(),
          update.host.data(), mix.host.data(), collapsed.host.data(), x.host.data());
    enter(*ops_->cuda, card(), streams.card.data(), halves.card.data(), y.card.data(),
          update.card.data(), mix.card.data(), collapsed.card.data(), x.card.data());
    EXPECT_TRUE(SameBits(streams)) << "take " << take;
    EXPECT_TRUE(SameBits(y)) << "take " << take;
    if (take != 2) {
      EXPECT_TRUE(SameBits(mix)) << "take " << take;
    }
    if (take > 0) {
      EXPECT_TRUE(SameBits(x, int64_t{picked} * dim_)) << "take " << take;
    }
    if (take > 0 && take != 3) {
      EXPECT_TRUE(SameBits(collapsed, int64_t{picked} * dim_)) << "take " << take;
    }
  }
}

TEST_P(BlockGpuTest, LatentsAgree) {
  const int dims = ops_->config.head_dim, q_lora = ops_->config.q_lora_rank;
  const float eps = ops_->config.norm_eps;
  const Twin<float> latent = Floats(int64_t{rows_} * q_lora);
  Twin<float> kv = Floats(int64_t{rows_} * dims, 30.0f);
  Twin<float> normed = OutputTwin<float>(int64_t{rows_} * q_lora);
  Twin<float> q = OutputTwin<float>(int64_t{rows_} * host().wq_b.n);
  Twin<Bf16> block = OutputTwin<Bf16>(int64_t{rows_} * dims);
  const Twin<int64_t> positions = Positions();
  std::vector<int32_t> places;
  for (int i = 0; i < rows_; ++i) places.push_back(rows_ - 1 - i);
  const Twin<int32_t> out_rows = MakeTwin(std::move(places));
  ops_->cpu->Latents(
      0, {{latent.host.data(), host().q_norm, eps, rows_, q_lora, normed.host.data()},
          {&host().wq_b, normed.host.data(), q_lora, rows_, q.host.data()},
          {kv.host.data(), host().kv_norm, eps, rows_, dims, kv.host.data()},
          {kv.host.data(), positions.host.data(), rows_, block.host.data(), out_rows.host.data()}});
  ops_->cuda->Latents(
      0, {{latent.card.data(), card().q_norm, eps, rows_, q_lora, normed.card.data()},
          {&card().wq_b, normed.card.data(), q_lora, rows_, q.card.data()},
          {kv.card.data(), card().kv_norm, eps, rows_, dims, kv.card.data()},
          {kv.card.data(), positions.card.data(), rows_, block.card.data(), out_rows.card.data()}});
  EXPECT_TRUE(SameBits(normed));
  EXPECT_TRUE(SameBits(q));
  EXPECT_TRUE(SameBits(block));
}

TEST_P(BlockGpuTest, AllReduceAgreesForOneRankAndForTwo) {
  const int64_t count = int64_t{rows_} * dim_;
  const Twin<float> partials = Floats(2 * count);
  Twin<Bf16> y0 = OutputTwin<Bf16>(count), y1 = OutputTwin<Bf16>(count);
  using Args = AllReduceArgs<Bf16>;
  const Args cpu_one[] = {{partials.host.data(), count, rows_, y0.host.data()}};
  const Args cuda_one[] = {{partials.card.data(), count, rows_, y0.card.data()}};
  ops_->cpu->AllReduce(cpu_one);
  ops_->cuda->AllReduce(cuda_one);
  EXPECT_TRUE(SameBits(y0));
  const Args cpu_two[] = {{partials.host.data(), count, rows_, y0.host.data()},
                          {partials.host.data() + count, count, rows_, y1.host.data()}};
  const Args cuda_two[] = {{partials.card.data(), count, rows_, y0.card.data()},
                           {partials.card.data() + count, count, rows_, y1.card.data()}};
  ops_->cpu->AllReduce(cpu_two);
  ops_->cuda->AllReduce(cuda_two);
  EXPECT_TRUE(SameBits(y0));
  EXPECT_TRUE(SameBits(y1));
}

// The choices of both sides' routers feed their experts.
TEST_P(BlockGpuTest, RouterAndExpertsAgree) {
  const DrafterConfig& config = ops_->config;
  const Twin<float> x = Floats(int64_t{rows_} * dim_);
  Twin<float> logits = OutputTwin<float>(int64_t{rows_} * config.experts);
  Twin<GateChoice> choices = MakeTwin(std::vector<GateChoice>(static_cast<size_t>(rows_)));
  ops_->cpu->Router(0, {x.host.data(), host().gate, host().gate_bias, rows_, logits.host.data(),
                        choices.host.data()});
  ops_->cuda->Router(0, {x.card.data(), card().gate, card().gate_bias, rows_, logits.card.data(),
                         choices.card.data(), &card()});
  EXPECT_TRUE(SameBits(logits));
  std::vector<GateChoice> chosen(static_cast<size_t>(rows_));
  ops_->cuda->Download(0, choices.card.data(), std::span(chosen));
  for (int row = 0; row < rows_; ++row) {
    for (int i = 0; i < config.experts_per_token; ++i) {
      EXPECT_EQ(chosen[row].experts[i], choices.host[row].experts[i]);
      EXPECT_EQ(chosen[row].weights[i], choices.host[row].weights[i]);
    }
  }
  const int64_t stride = int64_t{kMaxRequests} * kBlockRows * dim_;
  Twin<float> partials = MakeTwin(std::vector<float>(static_cast<size_t>(2 * stride)));
  ops_->cpu->Experts(
      0, {x.host.data(), choices.host.data(), &host(), rows_, partials.host.data(), stride});
  ops_->cuda->Experts(
      0, {x.card.data(), choices.card.data(), &card(), rows_, partials.card.data(), stride});
  EXPECT_TRUE(SameBits(partials)) << "of rows that the router has grouped";
  const std::vector<GateChoice> others(chosen.rbegin(), chosen.rend());
  choices = MakeTwin(others);
  ops_->cpu->Experts(
      0, {x.host.data(), choices.host.data(), &host(), rows_, partials.host.data(), stride});
  ops_->cuda->Experts(
      0, {x.card.data(), choices.card.data(), &card(), rows_, partials.card.data(), stride});
  EXPECT_TRUE(SameBits(partials)) << "of other choices behind them";
}

TEST_P(BlockGpuTest, RouterLatchesALogitThatIsNotANumber) {
  Twin<float> x = Floats(int64_t{rows_} * dim_);
  x.host[3] = std::numeric_limits<float>::quiet_NaN();
  CopyToCard(x);
  Twin<float> logits = OutputTwin<float>(int64_t{rows_} * ops_->config.experts);
  Twin<GateChoice> choices = OutputTwin<GateChoice>(rows_);
  ops_->cuda->Router(0, {x.card.data(), card().gate, card().gate_bias, rows_, logits.card.data(),
                         choices.card.data()});
  const absl::Status first = ops_->cuda->error(0).Take();
  EXPECT_EQ(first.message(), "router: a gate logit is not a number");
  EXPECT_TRUE(ops_->cuda->error(0).Take().ok()) << "the latch opens again";
}

INSTANTIATE_TEST_SUITE_P(Shapes, BlockGpuTest,
                         testing::Combine(testing::Values("tiny", "tiny-v4", "tiny-mixed",
                                                          "medium"),
                                          testing::Range(1, kMaxRequests + 1)),
                         [](const auto& tested) {
                           std::string name = std::get<0>(tested.param);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name + "_" + std::to_string(std::get<1>(tested.param));
                         });

}  // namespace
}  // namespace tp2
