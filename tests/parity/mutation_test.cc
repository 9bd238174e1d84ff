// Negative controls: every deliberate fault is reported.
#include "libcore/parity/mutation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "libcore/checkpoint/loader.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/compare.h"
#include "tests/support/planted_capture.h"
#include "tests/support/temp_model.h"

namespace tp2 {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> FailuresOf(StepEngine& engine, const CaptureReader& capture,
                                    const DrafterWeights& weights, CaptureWindow window) {
  const auto result = Compare(engine, nullptr, capture, weights,
                              {.window = window, .max_rounds = 0, .progress = nullptr});
  EXPECT_TRUE(result.ok()) << result.status();
  return result->Failures();
}

// A capture by our own drafter promises equal bits, so that even the faintest fault shows.
TEST(Mutations, EveryFaultIsReportedAgainstOurOwnCaptureAndSoundDraftersAreNot) {
  const TempModel model("tiny");
  const std::string dir = model.path("capture");
  ASSERT_TRUE(WritePlantedCapture(model.dir(), dir,
                                  {.rounds = 24,
                                   .near_ties = 0,
                                   .routing_flips = 0,
                                   .has_mismatch = false,
                                   .is_foreign = false})
                  .ok());
  const auto capture = CaptureReader::Open(dir);
  ASSERT_TRUE(capture.ok()) << capture.status();
  const auto checkpoint = *Checkpoint::Open(model.dir());
  const DrafterWeights& weights = checkpoint->weights();
  for (const char* mode : {"one-card", "emulated"}) {
    const auto engine = *MakeEngine({.model_dir = model.dir(), .backend = "cpu", .mode = mode});
    EXPECT_THAT(FailuresOf(*engine, *capture, weights, CaptureWindow::kTaps), IsEmpty()) << mode;
  }
  ASSERT_EQ(Mutations().size(), 15u);
  for (const MutationInfo& info : Mutations()) {
    const auto engine = MakeMutatedEngine(model.dir(), info.mutation, 2);
    ASSERT_TRUE(engine.ok()) << engine.status();
    EXPECT_THAT(FailuresOf(**engine, *capture, weights, CaptureWindow::kTaps), Not(IsEmpty()))
        << info.name;
  }
}

// Against a foreign engine's capture, where near-ties and routing flips excuse much: more than the
// one planted mismatch. The two-sided gate clamp is left out: at silu(-10) = -0.00045 it moves a
// logit less than another implementation's rounding does.
TEST(Mutations, FaultsAreReportedAgainstAForeignCaptureToo) {
  const TempModel model("tiny");
  const auto capture = CaptureReader::Open(TP2_SOURCE_DIR "/tests/golden/capture-tiny");
  ASSERT_TRUE(capture.ok()) << capture.status();
  const auto checkpoint = *Checkpoint::Open(model.dir());
  const std::vector<std::string> sound = {"1 unexplained mismatches"};
  for (const MutationInfo& info : Mutations()) {
    if (info.mutation == Mutation::kGateClamp) continue;
    const auto engine = *MakeMutatedEngine(model.dir(), info.mutation, 2);
    EXPECT_NE(FailuresOf(*engine, *capture, checkpoint->weights(), CaptureWindow::kTaps), sound)
        << info.name;
  }
}

TEST(Mutations, UnknownFaultIsRefusedWithTheNamesThereAre) {
  const auto unknown = FindMutation("none");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  for (const MutationInfo& info : Mutations()) {
    EXPECT_THAT(std::string(unknown.status().message()), HasSubstr(info.name));
    EXPECT_EQ(*FindMutation(info.name), info.mutation);
  }
}

}  // namespace
}  // namespace tp2
