// Markov steps, the exchange and confidence: the CUDA op set gives the bits of the CPU's.
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "tests/gpu/gpu_twin.h"
#include "tests/gpu/op_pair.h"

namespace tp2 {
namespace {

class HeadGpuTest : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void SetUp() override {
    TP2_NEEDS_GPU();
    requests_ = std::get<1>(GetParam());
    rng_ = Rng(static_cast<uint64_t>(requests_));
  }
  OpPair& Ops(int tp, int rank) { return GetOpPair(std::get<0>(GetParam()), tp, rank); }
  Twin<int32_t> Tokens(const DrafterConfig& config, int count) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < count; ++i) {
      tokens.push_back(static_cast<int32_t>(rng_.Below(config.vocab)));
    }
    return MakeTwin(std::move(tokens));
  }

  int requests_ = 0;
  Rng rng_{0};
};

TEST_P(HeadGpuTest, MarkovAgreesForTheWholeAndForEachRank) {
  for (const auto [tp, rank] : {std::array{1, 0}, {2, 0}, {2, 1}}) {
    OpPair& ops = Ops(tp, rank);
    const int vocab = ops.plan.vocab.count();
    const Twin<float> base = MakeTwin(RandomFloats(rng_, int64_t{3} * requests_ * vocab));
    const Twin<int32_t> previous = Tokens(ops.config, 6 * requests_);
    Twin<TopTwo> best = OutputTwin<TopTwo>(requests_);
    Twin<float> bias = OutputTwin<float>(int64_t{requests_} * vocab);
    Twin<int32_t> token = MakeTwin(std::vector<int32_t>(6 * requests_));
    Twin<int32_t> runner_up = MakeTwin(std::vector<int32_t>(5 * requests_));
    Twin<float> margin = MakeTwin(std::vector<float>(5 * requests_));
    const auto args = [&](auto side, const RankWeights& weights) {
      const ExchangeArgs choice = {.best = side(best),
                                   .requests = requests_,
                                   .token = side(token) + 1,
                                   .token_stride = 6,
                                   .runner_up = side(runner_up),
                                   .margin = side(margin),
                                   .result_stride = 5};
      return MarkovArgs{.base = side(base) + vocab,
                        .base_stride = int64_t{3} * vocab,
                        .previous = side(previous) + 1,
                        .previous_stride = 6,
                        .embed = weights.markov_embed,
                        .head = weights.markov_head,
                        .vocab_begin = ops.plan.vocab.begin,
                        .requests = requests_,
                        .best = side(best),
                        .bias = side(bias),
                        .choice = tp == 1 ? choice : ExchangeArgs()};
    };
    const auto host = [](auto& twin) { return twin.host.data(); };
    const auto card = [](auto& twin) { return twin.card.data(); };
    ops.cpu->Markov(0, args(host, ops.host));
    ops.cuda->Markov(0, args(card, ops.card));
    EXPECT_TRUE(SameBits(best)) << "rank " << rank << " of " << tp;
    EXPECT_TRUE(SameBits(bias)) << "rank " << rank << " of " << tp;
    EXPECT_TRUE(SameBits(token)) << "rank " << rank << " of " << tp;
    EXPECT_TRUE(SameBits(runner_up)) << "rank " << rank << " of " << tp;
    EXPECT_TRUE(SameBits(margin)) << "rank " << rank << " of " << tp;
  }
}

// Equal logits everywhere: only the tie rule decides, across warps and blocks.
TEST_P(HeadGpuTest, MarkovTakesTheLowerTokenOfEqualScores) {
  OpPair& ops = Ops(1, 0);
  const int vocab = ops.plan.vocab.count();
  std::vector<float> values(static_cast<size_t>(requests_) * vocab, -1e30f);
  for (int r = 0; r < requests_; ++r) {
    for (const int token : {vocab - 1, 700 + r, 37 + r}) values[r * int64_t{vocab} + token] = 1e30f;
  }
  const Twin<float> base = MakeTwin(std::move(values));
  const Twin<int32_t> previous = Tokens(ops.config, requests_);
  Twin<TopTwo> best = OutputTwin<TopTwo>(requests_);
  ops.cuda->Markov(0, {.base = base.card.data(),
                       .base_stride = vocab,
                       .previous = previous.card.data(),
                       .embed = ops.card.markov_embed,
                       .head = ops.card.markov_head,
                       .requests = requests_,
                       .best = best.card.data()});
  std::vector<TopTwo> found(static_cast<size_t>(requests_));
  ops.cuda->Download(0, best.card.data(), std::span(found));
  for (int r = 0; r < requests_; ++r) {
    EXPECT_EQ(found[r].first.token, 37 + r);
    EXPECT_EQ(found[r].second.token, 700 + r);
  }
}

TEST_P(HeadGpuTest, MarkovLatchesALogitThatIsNotANumber) {
  OpPair& ops = Ops(1, 0);
  const int vocab = ops.plan.vocab.count();
  std::vector<float> values = RandomFloats(rng_, int64_t{requests_} * vocab);
  values[11] = std::numeric_limits<float>::quiet_NaN();
  const Twin<float> base = MakeTwin(std::move(values));
  const Twin<int32_t> previous = Tokens(ops.config, requests_);
  Twin<TopTwo> best = OutputTwin<TopTwo>(requests_);
  const auto args = [&](const float* logits, const int32_t* tokens, const RankWeights& weights,
                        TopTwo* out) {
    return MarkovArgs{.base = logits,
                      .base_stride = vocab,
                      .previous = tokens,
                      .embed = weights.markov_embed,
                      .head = weights.markov_head,
                      .requests = requests_,
                      .best = out};
  };
  ops.cpu->Markov(0, args(base.host.data(), previous.host.data(), ops.host, best.host.data()));
  ops.cuda->Markov(0, args(base.card.data(), previous.card.data(), ops.card, best.card.data()));
  EXPECT_TRUE(SameBits(best));
  EXPECT_EQ(ops.cuda->error(0).Take(), ops.cpu->error(0).Take());
  EXPECT_TRUE(ops.cuda->error(0).Take().ok()) << "the latch opens again";
}

TEST_P(HeadGpuTest, ExchangeAgreesForOneRankAndForTwo) {
  OpPair& ops = Ops(1, 0);
  std::vector<TopTwo> candidates[2];
  for (int side = 0; side < 2; ++side) {
    for (int r = 0; r < requests_; ++r) {
      const float high = rng_.Signed();
      candidates[side].push_back({{high, side * 100 + r}, {high - 0.25f, side * 100 + 50 + r}});
    }
  }
  candidates[0][0] = candidates[1][0] = {kNoScore, kNoScore};
  const Twin<TopTwo> best0 = MakeTwin(candidates[0]), best1 = MakeTwin(candidates[1]);
  Twin<int32_t> token = MakeTwin(std::vector<int32_t>(12 * requests_));
  Twin<int32_t> runner_up = MakeTwin(std::vector<int32_t>(10 * requests_));
  Twin<float> margin = MakeTwin(std::vector<float>(10 * requests_));
  const auto run = [&](auto& op_set, auto side, size_t count) {
    const auto args = [&](const Twin<TopTwo>& best, int64_t i) {
      return ExchangeArgs{.best = side(best),
                          .requests = requests_,
                          .token = side(token) + i * 6 * requests_,
                          .token_stride = 6,
                          .runner_up = side(runner_up) + i * 5 * requests_,
                          .margin = side(margin) + i * 5 * requests_,
                          .result_stride = 5};
    };
    const ExchangeArgs both[] = {args(best0, 0), args(best1, 1)};
    op_set.Exchange(std::span(both).first(count));
  };
  for (const size_t count : {1, 2}) {
    run(
        *ops.cpu, [](auto& twin) { return twin.host.data(); }, count);
    run(
        *ops.cuda, [](auto& twin) { return twin.card.data(); }, count);
    EXPECT_TRUE(SameBits(token)) << count;
    EXPECT_TRUE(SameBits(runner_up)) << count;
    EXPECT_TRUE(SameBits(margin)) << count;
  }
}

TEST_P(HeadGpuTest, ConfidenceAgreesForEveryNumberOfDrafts) {
  OpPair& ops = Ops(1, 0);
  const Twin<int32_t> fed = Tokens(ops.config, 6 * requests_);
  for (int n_out = 1; n_out <= kBlockRows; ++n_out) {
    const Twin<float> xc =
        MakeTwin(RandomFloats(rng_, int64_t{requests_} * n_out * ops.config.dim));
    Twin<float> logits = MakeTwin(std::vector<float>(requests_ * kBlockRows));
    ops.cpu->Confidence(0, {xc.host.data(), fed.host.data(), 6, ops.host.confidence,
                            ops.host.markov_embed, requests_, n_out, logits.host.data()});
    ops.cuda->Confidence(0, {xc.card.data(), fed.card.data(), 6, ops.card.confidence,
                             ops.card.markov_embed, requests_, n_out, logits.card.data()});
    EXPECT_TRUE(SameBits(logits)) << "n_out " << n_out;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, HeadGpuTest,
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
