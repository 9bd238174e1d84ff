// Routing, attention and wo_a at sizes that no small checkpoint has: the kernels give the bits of
// libcore/math.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "libcore/math/fp8.h"
#include "libcore/math/gate.h"
#include "libcore/math/reduce.h"
#include "libcore/math/transcendental.h"
#include "libcore/ops/cuda/kernels.h"
#include "tests/gpu/gpu_twin.h"
#include "tests/gpu/op_pair.h"

namespace tp2 {
namespace {

std::vector<uint16_t> RandomHalves(Rng& rng, int64_t count, bool is_fp16) {
  std::vector<uint16_t> bits;
  for (const float value : RandomFloats(rng, count, 0.1f)) {
    bits.push_back(is_fp16 ? ToFp16(value).bits : ToBf16(value).bits);
  }
  return bits;
}

std::vector<float> Widened(const std::vector<uint16_t>& bits, bool is_fp16) {
  std::vector<float> values;
  for (const uint16_t half : bits) {
    values.push_back(is_fp16 ? ToFloat(Fp16{half}) : ToFloat(Bf16{half}));
  }
  return values;
}

// Both 16-bit types, and a column count that is no whole number of blocks.
TEST(EmbedGpuTest, HasTheBitsOfTheCpuForBothTypes) {
  TP2_NEEDS_GPU();
  ASSERT_EQ(cuda::PreloadKernels(), cudaSuccess);
  constexpr int kVocab = 7, kDim = 5248, kRows = 6;
  Rng rng(1);
  for (const bool is_fp16 : {false, true}) {
    Twin<uint16_t> embed = MakeTwin(RandomHalves(rng, int64_t{kVocab} * kDim, is_fp16));
    for (int k = 0; k < 64; ++k)
      embed.host[k] = static_cast<uint16_t>(k % 2 << 15 | 37 * k);  // subnormals
    CopyToCard(embed);
    const Twin<int32_t> ids = MakeTwin(std::vector<int32_t>{3, 0, 6, 6, 1, 2});
    Twin<Bf16> streams = OutputTwin<Bf16>(int64_t{kRows} * kStreams * kDim);
    Twin<float> pre = OutputTwin<float>(kRows * kStreams);
    const std::vector<float> values = Widened(embed.host, is_fp16);
    for (int s = 0; s < kRows * kStreams; ++s) {
      const int64_t from = int64_t{ids.host[s / kStreams]} * kDim;
      for (int k = 0; k < kDim; ++k) streams.host[int64_t{s} * kDim + k] = ToBf16(values[from + k]);
      pre.host[s] = s % kStreams == 0 ? 1.0f : 0.0f;
    }
    cuda::LaunchEmbed({.ids = ids.card.data(),
                       .rows = kRows,
                       .embed = {embed.card.data(), is_fp16, kVocab, kDim},
                       .streams = streams.card.data(),
                       .pre = pre.card.data()},
                      {});
    EXPECT_TRUE(SameBits(streams)) << (is_fp16 ? "fp16" : "bf16");
    EXPECT_TRUE(SameBits(pre));
  }
}

struct RouterSize {
  int dim, experts, top_k;
  bool is_fp16;
};

std::string NameOf(const RouterSize& size) {
  return std::to_string(size.experts) + "_experts_of_" + std::to_string(size.dim) +
         (size.is_fp16 ? "_fp16" : "_bf16");
}

class RouterGpuTest : public testing::TestWithParam<RouterSize> {};

// Pairs of experts are equal, so that ties must go to the lower one.
TEST_P(RouterGpuTest, HasTheBitsOfTheCpuForEveryRowCount) {
  TP2_NEEDS_GPU();
  ASSERT_EQ(cuda::PreloadKernels(), cudaSuccess);
  const auto [dim, experts, top_k, is_fp16] = GetParam();
  Rng rng(static_cast<uint64_t>(dim + experts));
  Twin<uint16_t> gate = MakeTwin(RandomHalves(rng, int64_t{experts} * dim, is_fp16));
  Twin<float> bias = MakeTwin(RandomFloats(rng, experts));
  for (int e = 1; e < experts; e += 2) {
    std::copy_n(gate.host.begin() + int64_t{e - 1} * dim, dim,
                gate.host.begin() + int64_t{e} * dim);
    bias.host[e] = bias.host[e - 1];
  }
  CopyToCard(gate);
  CopyToCard(bias);
  const std::vector<float> weights = Widened(gate.host, is_fp16);
  Twin<unsigned> arrivals = MakeTwin(std::vector<unsigned>(20));
  Twin<int> error = MakeTwin(std::vector<int>(1));
  struct Launched {
    int rows, multiprocessors;
  };
  for (const auto [rows, multiprocessors] :
       {Launched{1, 132}, {5, 132}, {5, 40}, {7, 1}, {10, 132}, {15, 132}, {20, 132}, {20, 28}}) {
    const Twin<float> x = MakeTwin(RandomFloats(rng, int64_t{rows} * dim));
    Twin<float> logits = OutputTwin<float>(int64_t{rows} * experts);
    Twin<GateChoice> choices = OutputTwin<GateChoice>(rows);
    for (int row = 0; row < rows; ++row) {
      std::vector<float> affinity;
      for (int e = 0; e < experts; ++e) {
        float& logit = logits.host[int64_t{row} * experts + e];
        logit = CanonicalDot<8>(dim, weights.data() + int64_t{e} * dim,
                                x.host.data() + int64_t{row} * dim);
        affinity.push_back(GateAffinity(logit));
      }
      choices.host[row] = ChooseExperts(affinity.data(), bias.host.data(), experts, top_k, 1.5f);
    }
    cuda::LaunchRouter({.x = x.card.data(),
                        .gate = {gate.card.data(), is_fp16, experts, dim},
                        .bias = bias.card.data(),
                        .rows = rows,
                        .dim = dim,
                        .experts = experts,
                        .top_k = top_k,
                        .route_scale = 1.5f,
                        .multiprocessors = multiprocessors,
                        .logits = logits.card.data(),
                        .choices = choices.card.data(),
                        .arrivals = arrivals.card.data(),
                        .error = error.card.data()},
                       {});
    EXPECT_TRUE(SameBits(logits)) << rows << " rows, multiprocessors " << multiprocessors;
    EXPECT_TRUE(SameBits(choices)) << rows << " rows, multiprocessors " << multiprocessors;
  }
  EXPECT_TRUE(SameBits(arrivals)) << "zero again";
  EXPECT_TRUE(SameBits(error));
}

INSTANTIATE_TEST_SUITE_P(Sizes, RouterGpuTest,
                         testing::Values(RouterSize{128, 7, 7, false},
                                         RouterSize{5120, 128, 6, true},
                                         RouterSize{4096, 150, 6, false},
                                         RouterSize{8192, 33, 8, true},
                                         RouterSize{128, 4096, 8, false}),
                         [](const auto& tested) { return NameOf(tested.param); });

struct ConfidenceSize {
  int dim, rank;
  bool is_weight_fp16, is_embed_fp16;
};

class ConfidenceGpuTest : public testing::TestWithParam<ConfidenceSize> {};

TEST_P(ConfidenceGpuTest, HasTheBitsOfTheCpu) {
  TP2_NEEDS_GPU();
  ASSERT_EQ(cuda::PreloadKernels(), cudaSuccess);
  const auto [dim, rank, is_weight_fp16, is_embed_fp16] = GetParam();
  constexpr int kVocab = 9, kRequests = 2, kOut = 3, kFedStride = 6;
  const int columns = dim + rank;
  Rng rng(static_cast<uint64_t>(columns));
  const Twin<uint16_t> weight = MakeTwin(RandomHalves(rng, columns, is_weight_fp16));
  const Twin<uint16_t> embed = MakeTwin(RandomHalves(rng, int64_t{kVocab} * rank, is_embed_fp16));
  const Twin<float> xc = MakeTwin(RandomFloats(rng, int64_t{kRequests} * kOut * dim));
  const Twin<int32_t> fed = MakeTwin(std::vector<int32_t>{4, 0, 8, 0, 0, 0, 1, 7, 7, 0, 0, 0});
  Twin<float> logits = MakeTwin(std::vector<float>(kRequests * kBlockRows));
  const std::vector<float> weights = Widened(weight.host, is_weight_fp16);
  const std::vector<float> embeddings = Widened(embed.host, is_embed_fp16);
  for (int i = 0; i < kRequests * kOut; ++i) {
    const int request = i / kOut, row = i % kOut;
    std::vector<float> joined(xc.host.begin() + int64_t{i} * dim,
                              xc.host.begin() + int64_t{i + 1} * dim);
    const auto token = embeddings.begin() + fed.host[request * kFedStride + row] * rank;
    joined.insert(joined.end(), token, token + rank);
    logits.host[request * kBlockRows + row] =
        CanonicalDot<8>(columns, weights.data(), joined.data());
  }
  cuda::LaunchConfidence({.xc = xc.card.data(),
                          .fed = fed.card.data(),
                          .fed_stride = kFedStride,
                          .weight = {weight.card.data(), is_weight_fp16, 1, columns},
                          .embed = {embed.card.data(), is_embed_fp16, kVocab, rank},
                          .requests = kRequests,
                          .n_out = kOut,
                          .block_rows = kBlockRows,
                          .dim = dim,
                          .logits = logits.card.data()},
                         {});
  EXPECT_TRUE(SameBits(logits));
}

INSTANTIATE_TEST_SUITE_P(Sizes, ConfidenceGpuTest,
                         testing::Values(ConfidenceSize{5120, 256, false, false},
                                         ConfidenceSize{128, 32, true, false},
                                         ConfidenceSize{8192, 2048, false, true}),
                         [](const auto& tested) {
                           return std::to_string(tested.param.dim) + "_and_" +
                                  std::to_string(tested.param.rank);
                         });

// Its scores need more shared memory than a kernel gets without asking. All keys are one vector, so
// that every score is the same.
TEST(AttentionKernelGpuTest, TakesTheLongestWindowOfAConfig) {
  TP2_NEEDS_GPU();
  ASSERT_EQ(cuda::PreloadKernels(), cudaSuccess);
  constexpr int kWindow = 4096, kDims = 128, kKeys = kWindow + kBlockRows;
  for (const int heads : {2, 4}) {
    Rng rng(static_cast<uint64_t>(heads));
    const std::vector<uint16_t> key = RandomHalves(rng, kDims, false);
    std::vector<Bf16> rows;
    for (int i = 0; i < kKeys * kDims; ++i) rows.push_back({key[i % kDims]});
    const Twin<Bf16> keys = MakeTwin(std::move(rows));
    const Twin<float> q = MakeTwin(RandomFloats(rng, kBlockRows * heads * kDims));
    const Twin<float> sink = MakeTwin(RandomFloats(rng, heads));
    const Twin<WindowRows> windows = MakeTwin(std::vector<WindowRows>{{0, 0, kWindow}});
    const Twin<int64_t> positions = MakeTwin(std::vector<int64_t>(kBlockRows));
    const Twin<CosSin> rope = MakeTwin(std::vector<CosSin>(32, {1.0f, 0.0f}));
    Twin<float> o = OutputTwin<float>(kBlockRows * heads * kDims);
    const std::vector<float> value = Widened(key, false);
    for (int i = 0; i < kBlockRows * heads; ++i) {
      const float score = CanonicalDot<8>(kDims, value.data(), q.host.data() + i * kDims) * 0.25f;
      const float largest = std::max(sink.host[i % heads], score);
      const float power = Exp(score - largest);
      const float sum = CanonicalReduce<1>(
          kKeys, [power](float accumulated, int) { return accumulated + power; });
      const float inverse = 1.0f / (sum + Exp(sink.host[i % heads] - largest));
      for (int d = 0; d < kDims; ++d) {
        float weighed = 0.0f;
        for (int j = 0; j < kKeys; ++j) weighed = std::fma(power, value[d], weighed);
        o.host[i * kDims + d] = weighed * inverse;
      }
    }
    cuda::LaunchAttention({.q = q.card.data(),
                           .rings = keys.card.data(),
                           .windows = windows.card.data(),
                           .block_kv = keys.card.data() + kWindow * kDims,
                           .sink = sink.card.data(),
                           .positions = positions.card.data(),
                           .rope = rope.card.data(),
                           .requests = 1,
                           .heads = heads,
                           .dims = kDims,
                           .rope_dims = 64,
                           .ring_rows = kWindow,
                           .max_window = kWindow,
                           .block_rows = kBlockRows,
                           .score_scale = 0.25f,
                           .o = o.card.data()},
                          {});
    EXPECT_TRUE(SameBits(o)) << heads << " heads";
  }
}

struct GroupedOutputSize {
  int inputs, outputs, block;
};

class GroupedOutputGpuTest : public testing::TestWithParam<GroupedOutputSize> {};

// One multiprocessor and very many of them take different forms of the kernel, and so do the row
// counts.
TEST_P(GroupedOutputGpuTest, HasTheBitsOfTheCpuForEveryRowCount) {
  TP2_NEEDS_GPU();
  ASSERT_EQ(cuda::PreloadKernels(), cudaSuccess);
  const auto [inputs, outputs, block] = GetParam();
  constexpr int kGroups = 2, kMaxRows = 20;
  Rng rng(static_cast<uint64_t>(inputs + outputs));
  std::vector<Fp8E4m3> codes;
  for (int i = 0; i < kGroups * outputs * inputs; ++i) {
    codes.push_back({static_cast<uint8_t>(rng.Below(2) * 128 + rng.Below(127))});
  }
  std::vector<float> powers;
  for (int i = 0; i < kGroups * outputs / block * (inputs / block); ++i) {
    powers.push_back(std::ldexp(1.0f, static_cast<int>(rng.Below(40)) - 20));
  }
  const Twin<Fp8E4m3> weights = MakeTwin(std::move(codes));
  const Twin<float> scale = MakeTwin(std::move(powers));
  const Twin<float> o = MakeTwin(RandomFloats(rng, int64_t{kMaxRows} * kGroups * inputs));
  Twin<float> z = OutputTwin<float>(int64_t{kMaxRows} * kGroups * outputs);
  for (int w = 0; w < kGroups * outputs; ++w) {
    std::vector<float> row;
    for (int k = 0; k < inputs; ++k) {
      row.push_back(ToFloat(weights.host[int64_t{w} * inputs + k]) *
                    scale.host[w / block * (inputs / block) + k / block]);
    }
    for (int r = 0; r < kMaxRows; ++r) {
      const float* x = o.host.data() + (int64_t{r} * kGroups + w / outputs) * inputs;
      z.host[int64_t{r} * kGroups * outputs + w] = CanonicalDot<16>(inputs, row.data(), x);
    }
  }
  for (const int multiprocessors : {1, 1 << 20}) {
    for (const int rows : {1, 5, 6, 8, 10, 11, 15, 16, 20}) {
      ASSERT_EQ(cudaMemset(z.card.data(), 0x22, z.host.size() * sizeof(float)), cudaSuccess);
      cuda::LaunchGroupedOutput({.o = o.card.data(),
                                 .weights = weights.card.data(),
                                 .scale = scale.card.data(),
                                 .block = block,
                                 .rows = rows,
                                 .groups = kGroups,
                                 .inputs = inputs,
                                 .outputs = outputs,
                                 .multiprocessors = multiprocessors,
                                 .z = z.card.data()},
                                {});
      EXPECT_TRUE(SameBits(z, int64_t{rows} * kGroups * outputs))
          << "rows " << rows << ", multiprocessors " << multiprocessors;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, GroupedOutputGpuTest,
                         testing::Values(GroupedOutputSize{128, 128, 128},
                                         GroupedOutputSize{640, 96, 32},
                                         GroupedOutputSize{4224, 64, 32}),
                         [](const auto& tested) {
                           return std::to_string(tested.param.outputs) + "_of_" +
                                  std::to_string(tested.param.inputs);
                         });

}  // namespace
}  // namespace tp2
