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

// What an attention of some requests reads.
struct AttentionInputs {
  Twin<float> q;
  Twin<Bf16> rings, block_kv;
  Twin<WindowRows> windows;
  Twin<int64_t> positions;

  AttentionInputs(const DrafterConfig& config, int requests)
      : AttentionInputs(config, requests, Rng(static_cast<uint64_t>(requests))) {}

 private:
  AttentionInputs(const DrafterConfig& config, int requests, Rng rng)
      // Large enough that softmax is far from uniform.
      : q(MakeTwin(
            RandomFloats(rng, int64_t{requests} * kBlockRows * config.query_values(), 2.0f))),
        rings(
            MakeTwin(RandomBf16s(rng, int64_t{kSlotCount} * config.ring_rows() * config.head_dim))),
        block_kv(MakeTwin(RandomBf16s(rng, int64_t{requests} * kBlockRows * config.head_dim))),
        windows(MakeTwin(SomeWindows(config, requests))),
        positions(MakeTwin(SomePositions(rng, requests * kBlockRows))) {}
  static std::vector<int64_t> SomePositions(Rng& rng, int rows) {
    std::vector<int64_t> positions;
    for (int i = 0; i < rows; ++i) positions.push_back(static_cast<int64_t>(rng.Below(70000)));
    return positions;
  }
};

TEST_P(AttentionGpuTest, AgreesOnPartialFullAndWrappedWindows) {
  TP2_NEEDS_GPU();
  const auto [shape, requests] = GetParam();
  OpPair& ops = GetOpPair(shape, 1, 0);
  const int heads = ops.config.heads;
  const AttentionInputs in(ops.config, requests);
  Twin<float> o = OutputTwin<float>(static_cast<int64_t>(in.q.host.size()));
  ops.cpu->Attention(
      0, {in.q.host.data(), in.rings.host.data(), in.windows.host.data(), in.block_kv.host.data(),
          ops.host.stages[0].attn_sink, in.positions.host.data(), requests, heads, o.host.data()});
  ops.cuda->Attention(
      0, {in.q.card.data(), in.rings.card.data(), in.windows.card.data(), in.block_kv.card.data(),
          ops.card.stages[0].attn_sink, in.positions.card.data(), requests, heads, o.card.data()});
  EXPECT_TRUE(SameBits(o));
}

TEST_P(AttentionGpuTest, AttendAgreesAndLeavesTheQueriesFinished) {
  TP2_NEEDS_GPU();
  const auto [shape, requests] = GetParam();
  OpPair& ops = GetOpPair(shape, 1, 0);
  const int heads = ops.config.heads, rows = requests * kBlockRows;
  AttentionInputs in(ops.config, requests);
  Twin<float> o = OutputTwin<float>(static_cast<int64_t>(in.q.host.size()));
  ops.cpu->Attend(0, {.queries = {in.q.host.data(), in.positions.host.data(), rows, heads},
                      .attention = {in.q.host.data(), in.rings.host.data(), in.windows.host.data(),
                                    in.block_kv.host.data(), ops.host.stages[0].attn_sink,
                                    in.positions.host.data(), requests, heads, o.host.data()}});
  ops.cuda->Attend(0, {.queries = {in.q.card.data(), in.positions.card.data(), rows, heads},
                       .attention = {in.q.card.data(), in.rings.card.data(), in.windows.card.data(),
                                     in.block_kv.card.data(), ops.card.stages[0].attn_sink,
                                     in.positions.card.data(), requests, heads, o.card.data()}});
  EXPECT_TRUE(SameBits(in.q));
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
