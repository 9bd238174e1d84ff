// Attention and the grouped output projection: the CUDA op set gives the bits of the CPU's.
#include <gtest/gtest.h>

#include "tests/gpu/gpu_twin.h"
#include "tests/gpu/op_pair.h"

namespace tp2 {
namespace {

class AttentionGpuTest : public testing::TestWithParam<std::tuple<std::string, int>> {};

// Windows of every kind: one row, partial, full, wrapped around the ring's end.
std::vector<WindowRows> SomeWindows(const DrafterConfig& config, int requests) {
  const int window = config.window;
  const WindowRows all[kMaxRequests] = {{config.ring_rows() * 3 - window / 2, 2, window},
                                        {0, 7, 1},
                                        {61234, 0, window},
                                        {5, 4, window / 2}};
  return {all, all + requests};
}

TEST_P(AttentionGpuTest, AgreesOnPartialFullAndWrappedWindows) {
  TP2_NEEDS_GPU();
  const auto [shape, requests] = GetParam();
  OpPair& ops = GetOpPair(shape, 1, 0);
  const DrafterConfig& config = ops.config;
  Rng rng(static_cast<uint64_t>(requests));
  const int rows = requests * kBlockRows;
  const int64_t query_values = int64_t{rows} * config.query_values();
  // Large enough that softmax is far from uniform.
  const Twin<float> q = MakeTwin(RandomFloats(rng, query_values, 2.0f));
  const Twin<Bf16> rings =
      MakeTwin(RandomBf16s(rng, int64_t{kSlotCount} * config.ring_rows() * config.head_dim));
  const Twin<Bf16> block_kv = MakeTwin(RandomBf16s(rng, int64_t{rows} * config.head_dim));
  const Twin<WindowRows> windows = MakeTwin(SomeWindows(config, requests));
  std::vector<int64_t> places;
  for (int i = 0; i < rows; ++i) places.push_back(static_cast<int64_t>(rng.Below(70000)));
  const Twin<int64_t> positions = MakeTwin(std::move(places));
  Twin<float> o = OutputTwin<float>(query_values);
  ops.cpu->Attention(0, {q.host.data(), rings.host.data(), windows.host.data(),
                         block_kv.host.data(), ops.host.stages[0].attn_sink, positions.host.data(),
                         requests, config.heads, o.host.data()});
  ops.cuda->Attention(0, {q.card.data(), rings.card.data(), windows.card.data(),
                          block_kv.card.data(), ops.card.stages[0].attn_sink, positions.card.data(),
                          requests, config.heads, o.card.data()});
  EXPECT_TRUE(SameBits(o));
}

TEST_P(AttentionGpuTest, GroupedOutputAgreesForTheWholeAndForEachRank) {
  TP2_NEEDS_GPU();
  const auto [shape, requests] = GetParam();
  for (const auto& [tp, rank] : {std::pair{1, 0}, {2, 0}, {2, 1}}) {
    OpPair& ops = GetOpPair(shape, tp, rank);
    const int groups = ops.plan.groups.count();
    const int rows = requests * kBlockRows;
    Rng rng(static_cast<uint64_t>(requests));
    const Twin<float> o =
        MakeTwin(RandomFloats(rng, int64_t{rows} * groups * ops.config.group_inputs()));
    Twin<float> z = OutputTwin<float>(int64_t{rows} * groups * ops.config.o_lora_rank);
    for (int stage = 0; stage < ops.config.stages; ++stage) {
      ops.cpu->GroupedOutput(
          0, {o.host.data(), &ops.host.stages[stage].wo_a, rows, groups, z.host.data()});
      ops.cuda->GroupedOutput(
          0, {o.card.data(), &ops.card.stages[stage].wo_a, rows, groups, z.card.data()});
      EXPECT_TRUE(SameBits(z)) << "stage " << stage << " rank " << rank << " of " << tp;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionGpuTest,
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
