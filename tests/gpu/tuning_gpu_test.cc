// Kernel tables on a card: every candidate has the bits of the CPU, and is what gets timed.
#include <gtest/gtest.h>

#include "libcore/bench/tune_stopwatch.h"
#include "libcore/tuning/candidates.h"
#include "libcore/tuning/kernel_choices.h"
#include "tests/exl3/test_matrix.h"
#include "tests/gpu/gpu_twin.h"
#include "tests/gpu/op_pair.h"

namespace tp2 {
namespace {

// wq_a + wkv in small: two matrices of one width and k.
tuning::ProductLaunch SmallLaunch(int rows) { return {"test", 5, 2560, {384, 128}, 2, 384, rows}; }

std::shared_ptr<tuning::KernelChoices> OneChoice(const tuning::KernelKey& key,
                                                 const tuning::Choice& choice) {
  tuning::KernelTable table;
  table.entries[key] = {choice, std::nullopt, std::nullopt, std::nullopt};
  return std::make_shared<tuning::KernelChoices>(std::move(table), "test");
}

class TuningGpuTest : public testing::Test {
 protected:
  void TearDown() override {
    if (!WhyNoGpu().empty()) return;
    ops().cuda->set_kernels(nullptr);
    ops().cuda->set_joins_products(true);
  }
  static OpPair& ops() { return GetOpPair("tiny", 1, 0); }

  // Both products of SmallLaunch on both sides.
  void ExpectSameBits(int rows) {
    const tuning::ProductLaunch launch = SmallLaunch(rows);
    Rng rng(5);
    const Twin<float> x = MakeTwin(RandomFloats(rng, int64_t{rows} * launch.k));
    std::vector<exl3::TestMatrix> matrices;
    std::vector<exl3::MatrixView> host_views, card_views;
    device::Arena arena;
    cuda::RepackStaging staging;
    std::vector<Twin<float>> y;
    for (const int n : launch.outputs) {
      matrices.push_back(exl3::RandomMatrix(launch.k, n, launch.bits, exl3::Codebook::kMul1, n));
      host_views.push_back(matrices.back().view());
      card_views.push_back(*cuda::PlaceMatrix(host_views.back(), arena, staging));
      y.push_back(OutputTwin<float>(int64_t{rows} * n));
    }
    std::vector<LinearOpArgs> host, card;
    for (size_t i = 0; i < y.size(); ++i) {
      host.push_back({&host_views[i], x.host.data(), launch.k, rows, y[i].host.data()});
      card.push_back({&card_views[i], x.card.data(), launch.k, rows, y[i].card.data()});
    }
    ops().cpu->Linear(0, host);
    ops().cuda->Linear(0, card);
    for (const Twin<float>& one : y) EXPECT_TRUE(SameBits(one));
  }
};

// The candidates of cards of 1 to 132 multiprocessors, all on this one.
TEST_F(TuningGpuTest, EveryCandidateHasTheBitsOfTheCpu) {
  TP2_NEEDS_GPU();
  for (const int rows : {1, 5, 20, 24}) {
    const tuning::ProductLaunch launch = SmallLaunch(rows);
    for (const int multiprocessors : {1, 36, 132}) {
      for (const tuning::Choice& choice :
           tuning::ProductCandidates(launch, multiprocessors).choices) {
        const auto kernels = OneChoice(launch.key(), choice);
        ops().cuda->set_kernels(kernels);
        SCOPED_TRACE(tuning::ChoiceText(choice));
        ExpectSameBits(rows);
        EXPECT_EQ(kernels->use().found, 1) << "the table was not asked";
        EXPECT_EQ(kernels->use().missing, 0);
      }
    }
  }
}

TEST_F(TuningGpuTest, LaunchesOfTheirOwnHaveTheSameBits) {
  TP2_NEEDS_GPU();
  ops().cuda->set_joins_products(false);
  for (const int rows : {5, 29}) ExpectSameBits(rows);
}

TEST_F(TuningGpuTest, TheStopwatchTimesEveryCandidateAsAGraph) {
  TP2_NEEDS_GPU();
  const tuning::ProductLaunch launch = SmallLaunch(5);
  auto stopwatch = bench::MakeProductStopwatch(ops().config, "", {launch});
  ASSERT_TRUE(stopwatch.ok()) << stopwatch.status();
  const auto choices = tuning::ProductCandidates(launch, 132).choices;
  ASSERT_GT(choices.size(), 1u);
  const auto selection =
      tuning::Select(**stopwatch, launch.key(), choices, {.rounds = 1, .replays = 3});
  ASSERT_TRUE(selection.ok()) << selection.status();
  for (const tuning::Timing& timing : selection->timings) {
    ASSERT_FALSE(timing.us.empty()) << timing.failure;
    for (const double us : timing.us) {
      EXPECT_GT(us, 0.5);
      EXPECT_LT(us, 1000);
    }
  }
}

}  // namespace
}  // namespace tp2
