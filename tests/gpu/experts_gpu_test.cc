// The routed and the shared experts, whatever the rows choose: the CUDA op set gives the bits of
// the CPU's, on cards with more places than work and with far fewer.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/gpu/gpu_twin.h"
#include "tests/gpu/op_pair.h"

namespace tp2 {
namespace {

struct Choices {
  const char* name;
  // Expert of a row's choice `i`, of `top_k` among `experts`; different ones in a row.
  int (*expert)(int row, int i, int top_k, int experts);
};

constexpr Choices kChoices[] = {
    // The longest jobs, and several of one expert behind each other.
    {"all rows meet", [](int, int i, int, int experts) { return experts - 1 - 2 * i; }},
    // The most jobs, until the experts are used up.
    {"rows keep apart",
     [](int row, int i, int top_k, int experts) { return (row * top_k + i) % experts; }},
    // One expert with all rows beside jobs of one row.
    {"rows meet once",
     [](int row, int i, int top_k, int experts) {
       return i == 0 ? 0 : 1 + (row * (top_k - 1) + i - 1) % (experts - 1);
     }},
    // Whole and partly filled groups and jobs behind each other: of 13 rows, experts have 5, 8, 8,
    // 5, 9 and 4; of 20 they have 5, 15, 8, 12, 9 and 11.
    {"experts share the rows",
     [](int row, int i, int, int) {
       constexpr int kFirstRows[] = {5, 8, 9};
       return 2 * i + (row < kFirstRows[i % 3] ? 0 : 1);
     }},
};

// Shape, multiprocessors (0: the card's), rows.
class ExpertsGpuTest : public testing::TestWithParam<std::tuple<std::string, int, int>> {};

// One behind the other, so that sums that a launch left behind would be seen by the next.
TEST_P(ExpertsGpuTest, AgreeForAllChoices) {
  TP2_NEEDS_GPU();
  const auto& [shape, multiprocessors, rows] = GetParam();
  OpPair& ops = GetOpPair(shape, 1, 0, multiprocessors);
  const int top_k = ops.config.experts_per_token;
  Rng rng(static_cast<uint64_t>(rows));
  const int64_t stride = int64_t{rows} * ops.config.dim;
  for (const Choices& pattern : kChoices) {
    const Twin<float> x = MakeTwin(RandomFloats(rng, stride));
    std::vector<GateChoice> chosen(static_cast<size_t>(rows));
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < top_k; ++i) {
        chosen[row].experts[i] = pattern.expert(row, i, top_k, ops.config.experts);
        chosen[row].weights[i] = rng.Signed();
      }
    }
    const Twin<GateChoice> choices = MakeTwin(std::move(chosen));
    Twin<float> partials = OutputTwin<float>(2 * stride);
    ops.cpu->Experts(0, {x.host.data(), choices.host.data(), &ops.host.stages[1], rows,
                         partials.host.data(), stride});
    ops.cuda->Experts(0, {x.card.data(), choices.card.data(), &ops.card.stages[1], rows,
                          partials.card.data(), stride});
    EXPECT_TRUE(SameBits(partials)) << pattern.name;
  }
}

std::string NameOf(const testing::TestParamInfo<ExpertsGpuTest::ParamType>& tested) {
  const auto& [shape, multiprocessors, rows] = tested.param;
  std::string name = shape + "_on_" + std::to_string(multiprocessors) + "_" + std::to_string(rows);
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

// "tiny-mixed" has jobs of several widths and codebooks in a list. On one multiprocessor a block
// crosses outputs, jobs and widths; with 20 rows there it takes a second wave.
INSTANTIATE_TEST_SUITE_P(Tiny, ExpertsGpuTest,
                         testing::Combine(testing::Values("tiny", "tiny-v4", "tiny-mixed"),
                                          testing::Values(0, 1), testing::Values(1, 7, 20)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Medium, ExpertsGpuTest,
                         testing::Combine(testing::Values("medium"), testing::Values(0, 1, 3),
                                          testing::Values(5, 13)),
                         NameOf);

}  // namespace
}  // namespace tp2
