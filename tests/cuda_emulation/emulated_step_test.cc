// Whole STEPs over the CUDA op set's own kernels, on the CPU: every output has the bits of the CPU
// op set, from graphs and without.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "libcore/base/rng.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/workload.h"
#include "tests/support/golden.h"

namespace tp2 {
namespace {

// Two STEPs of a request: its first rows, then as many as a round accepts at most.
std::vector<EntryOutput> Outputs(const std::string& backend, const std::string& mode,
                                 bool uses_graphs) {
  const auto engine = MakeEngine({.model_dir = GoldenFolder(),
                                  .backend = backend,
                                  .mode = mode,
                                  .max_positions = 4096,
                                  .uses_graphs = uses_graphs});
  EXPECT_TRUE(engine.ok()) << engine.status();
  std::vector<EntryOutput> outputs;
  if (!engine.ok()) return outputs;
  Rng rng(7);
  int64_t position = 0;
  for (const int row_count : {3, 6}) {
    const std::vector<Bf16> rows =
        RandomRows(rng, row_count * (*engine)->info().config.tap_values());
    const StepEntry entry = {
        {.slot = 2, .position = position, .row_count = row_count, .values = rows},
        /*anchor=*/static_cast<int32_t>(11 + position)};
    const auto step = (*engine)->Step(
        {.entries = {&entry, 1}, .n_out = kBlockRows, .wants_margins = row_count == 6});
    EXPECT_TRUE(step.ok()) << step.status();
    if (step.ok()) outputs.push_back(step->entries[0]);
    position += row_count;
  }
  return outputs;
}

class EmulatedStep : public testing::TestWithParam<std::pair<const char*, bool>> {};

TEST_P(EmulatedStep, HasTheBitsOfTheCpu) {
  const auto [mode, uses_graphs] = GetParam();
  const std::vector<EntryOutput> expected = Outputs("cpu", "one-card", false);
  const std::vector<EntryOutput> found = Outputs("cuda", mode, uses_graphs);
  ASSERT_EQ(expected.size(), 2u);
  ASSERT_EQ(found.size(), 2u);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i].tokens, expected[i].tokens) << i;
    EXPECT_EQ(found[i].confidence_logit, expected[i].confidence_logit) << i;
    EXPECT_EQ(found[i].window_rows, expected[i].window_rows) << i;
  }
  EXPECT_EQ(found[1].margin, expected[1].margin);
  EXPECT_EQ(found[1].runner_up, expected[1].runner_up);
}

INSTANTIATE_TEST_SUITE_P(Modes, EmulatedStep,
                         testing::Values(std::pair{"one-card", true}, std::pair{"emulated", false}),
                         [](const auto& mode) { return mode.param.second ? "Graphs" : "Eager"; });

}  // namespace
}  // namespace tp2
