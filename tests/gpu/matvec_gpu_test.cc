// Routing at sizes that no small checkpoint has: the kernel gives the bits of libcore/math.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "libcore/math/gate.h"
#include "libcore/math/reduce.h"
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
  for (const int rows : {1, 5, 7, 20}) {
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
                        .logits = logits.card.data(),
                        .choices = choices.card.data(),
                        .arrivals = arrivals.card.data(),
                        .error = error.card.data()},
                       {});
    EXPECT_TRUE(SameBits(logits)) << "rows " << rows;
    EXPECT_TRUE(SameBits(choices)) << "rows " << rows;
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

}  // namespace
}  // namespace tp2
