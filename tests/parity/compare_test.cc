// The committed capture: its planted differences are found, named and nothing else is.
#include "libcore/parity/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "libcore/base/digest.h"
#include "libcore/base/file.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/compare_report.h"
#include "tests/support/planted_capture.h"
#include "tests/support/temp_model.h"

namespace tp2 {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAreArray;

const char kCaptureDir[] = TP2_SOURCE_DIR "/tests/golden/capture-tiny";

// As the capture's README lists them.
const std::vector<PlantedPlace> kNearTies = {{60, 2}, {3, 3}, {59, 0}, {60, 1}, {44, 2}};
const std::vector<PlantedPlace> kFlips = {{63, 3}, {39, 1}, {39, 0}};
const PlantedPlace kMismatch = {49, 1};

std::vector<PlantedPlace> Places(const WindowResult& result, Verdict verdict) {
  std::vector<PlantedPlace> places;
  for (const Mismatch& mismatch : result.mismatches) {
    if (mismatch.verdict == verdict) places.push_back({mismatch.round, mismatch.block});
  }
  return places;
}

class CompareGolden : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = new TempModel("tiny"); }
  static void TearDownTestSuite() { delete model_; }

  static std::unique_ptr<StepEngine> Engine(const std::string& mode) {
    auto engine = MakeEngine({.model_dir = model_->dir(), .backend = "cpu", .mode = mode});
    EXPECT_TRUE(engine.ok()) << engine.status();
    return std::move(*engine);
  }

  // Window `window` in `mode`, with the one-card model beside it unless that is the mode.
  static WindowResult Run(const std::string& mode, CaptureWindow window) {
    const auto capture = CaptureReader::Open(kCaptureDir);
    EXPECT_TRUE(capture.ok()) << capture.status();
    const auto checkpoint = *Checkpoint::Open(model_->dir());
    const auto engine = Engine(mode);
    EXPECT_TRUE(
        capture->CheckModel(Hex(engine->info().identity_digest), engine->info().config).ok());
    std::unique_ptr<StepEngine> reference;
    if (mode != "one-card") reference = Engine("one-card");
    const auto result = Compare(*engine, reference.get(), *capture, checkpoint->weights(),
                                {.window = window, .max_rounds = 0, .progress = nullptr});
    EXPECT_TRUE(result.ok()) << result.status();
    return *result;
  }

  static TempModel* model_;
};

TempModel* CompareGolden::model_ = nullptr;

TEST_F(CompareGolden, WindowAShowsThePlantedDifferencesAndNothingElse) {
  const WindowResult result = Run("one-card", CaptureWindow::kMainX);
  EXPECT_THAT(Places(result, Verdict::kUnexplained), ElementsAre(kMismatch));
  EXPECT_THAT(Places(result, Verdict::kNearTie), UnorderedElementsAreArray(kNearTies));
  EXPECT_THAT(Places(result, Verdict::kRouting), UnorderedElementsAreArray(kFlips));
  EXPECT_EQ(result.engine.blocks, 147);
  EXPECT_EQ(result.engine.exact, 147 - 9);
  EXPECT_THAT(result.Failures(), ElementsAre("1 unexplained mismatches"));
  EXPECT_STREQ(result.noise.source, "margins");
  // The planted noise: the sum of two uniform values of +-0.02, median 0.0117, per logit 1.4826 /
  // sqrt(2) of it.
  EXPECT_NEAR(result.noise.measured, 0.0123, 0.002);
}

TEST_F(CompareGolden, WindowBExplainsAllThatRoundingDoesAndKeepsThePlantedMismatch) {
  const WindowResult result = Run("one-card", CaptureWindow::kTaps);
  EXPECT_THAT(Places(result, Verdict::kUnexplained), ElementsAre(kMismatch));
  // Rounding may resolve a planted tie the engine's way or change the routing in front of it; it
  // makes none of them unexplained.
  EXPECT_EQ(result.Count(Verdict::kNearTie), 9);
  EXPECT_THAT(Places(result, Verdict::kRouting), IsSupersetOf(kFlips));
  EXPECT_LT(result.noise.measured, result.noise.limit);
}

TEST_F(CompareGolden, TwoRanksAreTheOneCardModelInEveryBlock) {
  for (const char* mode : {"emulated", "host-pair"}) {
    const WindowResult result = Run(mode, CaptureWindow::kTaps);
    EXPECT_EQ(result.reference.ExactPercent(), 100.0) << mode;
    EXPECT_EQ(result.reference.blocks, 147) << mode;
    EXPECT_EQ(result.engine.exact, result.reference_engine.exact) << mode;
  }
}

TEST_F(CompareGolden, ReportsNameVerdictsForPeopleMachinesAndCi) {
  const WindowResult window = Run("one-card", CaptureWindow::kMainX);
  const CompareReport report = {"one-card", "", "a<b", Engine("one-card")->info(), {}, {window}};
  EXPECT_FALSE(report.has_passed());
  EXPECT_THAT(CompareText(report), HasSubstr("unexplained  round 49 block 1 position 4"));
  const Json json = CompareJson(report);
  EXPECT_EQ(json["schema"], "tp2-parity/1");
  EXPECT_EQ(json["windows"][0]["verdicts"]["unexplained"], 1);
  EXPECT_EQ(json["windows"][0]["verdicts"]["near_tie"], 5);
  EXPECT_EQ(json["windows"][0]["engine"]["asked_at_position"].size(), 5u);
  const std::string junit = CompareJUnit(report);
  EXPECT_THAT(junit, HasSubstr("<testsuites name=\"tp2-parity\" tests=\"3\" failures=\"1\">"));
  EXPECT_THAT(junit, HasSubstr("<testsuite name=\"window A\">"));
  EXPECT_THAT(junit, HasSubstr("<failure message=\"unexplained  round 49 block 1"));
}

TEST_F(CompareGolden, CommittedCaptureIsWhatTheGeneratorWrites) {
  const std::string dir = model_->path("capture");
  const auto planted = WritePlantedCapture(model_->dir(), dir, {});
  ASSERT_TRUE(planted.ok()) << planted.status();
  EXPECT_EQ(planted->near_ties, kNearTies);
  EXPECT_EQ(planted->routing_flips, kFlips);
  EXPECT_THAT(planted->mismatches, ElementsAre(kMismatch));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    const auto mine = MappedFile::Open(entry.path().string());
    const auto committed = MappedFile::Open(std::string(kCaptureDir) + "/" + name);
    ASSERT_TRUE(mine.ok() && committed.ok()) << name;
    EXPECT_TRUE(std::ranges::equal(mine->bytes(), committed->bytes())) << name;
    ++files;
  }
  EXPECT_EQ(files, 4);
}

}  // namespace
}  // namespace tp2
