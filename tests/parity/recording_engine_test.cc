// What --record writes is what was served: replayed, it gives the same bits.
#include "libcore/parity/recording_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "libcore/base/rng.h"
#include "libcore/capture/capture_reader.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/compare.h"
#include "libcore/parity/workload.h"

namespace tp2 {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const char kModel[] = TP2_SOURCE_DIR "/tests/golden/v41-tiny";

class RecordingEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "tp2_record_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    dir_ = (folder_ / "capture").string();
    auto recorder = RecordingEngine::Create(NewEngine(), dir_);
    ASSERT_TRUE(recorder.ok()) << recorder.status();
    recorder_ = std::move(*recorder);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::unique_ptr<StepEngine> NewEngine() {
    auto engine = MakeEngine({.model_dir = kModel, .backend = "cpu", .thread_count = 1});
    EXPECT_TRUE(engine.ok()) << engine.status();
    return std::move(*engine);
  }

  std::vector<Bf16> Rows(int count, RowKind kind = RowKind::kTaps) {
    const DrafterConfig& config = recorder_->info().config;
    return RandomRows(rng_,
                      int64_t{count} * (kind == RowKind::kTaps ? config.tap_values() : config.dim));
  }
  void Insert(int64_t position, int count) {
    const std::vector<Bf16> rows = Rows(count);
    const absl::Status status =
        recorder_->Insert({.slot = 3, .position = position, .row_count = count, .values = rows});
    ASSERT_TRUE(status.ok()) << status;
  }
  void Draft(int64_t position, int count, int32_t anchor) {
    const std::vector<Bf16> rows = Rows(count);
    StepEntry entry;
    entry.rows = {.slot = 3, .position = position, .row_count = count, .values = rows};
    entry.anchor = anchor;
    const auto outputs = recorder_->Step({.entries = {&entry, 1}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
  }

  // The finished capture against a fresh engine: equal bits in every block.
  void ExpectReplaysExactly(int64_t blocks) {
    const absl::Status finished = recorder_->Finish();
    ASSERT_TRUE(finished.ok()) << finished;
    const auto capture = CaptureReader::Open(dir_);
    ASSERT_TRUE(capture.ok()) << capture.status();
    const auto checkpoint = Checkpoint::Open(kModel);
    ASSERT_TRUE(checkpoint.ok());
    const auto engine = NewEngine();
    const auto result = Compare(*engine, nullptr, *capture, (*checkpoint)->weights(), {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->promises_equal_bits);
    EXPECT_EQ(result->engine.blocks, blocks);
    EXPECT_EQ(result->engine.exact, blocks);
    EXPECT_THAT(result->Failures(), IsEmpty());
  }

  Rng rng_{21};
  fs::path folder_;
  std::string dir_;
  std::unique_ptr<RecordingEngine> recorder_;
};

TEST_F(RecordingEngineTest, RowsInsertedWithoutADraftReachTheNextBlock) {
  ASSERT_TRUE(recorder_->ResetSlot(3, 40).ok());
  Insert(40, 6);
  Insert(46, 3);
  Draft(49, 2, 5);
  Draft(51, 0, 6);
  Insert(51, 4);
  Insert(53, 1);  // rolls back two of the four
  Draft(54, 1, 7);
  Draft(52, 2, 8);  // rolls back into recorded rows
  ExpectReplaysExactly(4);
}

TEST_F(RecordingEngineTest, OfALongPromptTheNewestRowsStay) {
  ASSERT_TRUE(recorder_->ResetSlot(3, 0).ok());
  for (int i = 0; i < 3; ++i) Insert(100 * i, 100);
  Draft(300, 2, 9);
  Draft(302, 1, 10);
  ExpectReplaysExactly(2);
}

TEST_F(RecordingEngineTest, ResetSlotsStartAnew) {
  ASSERT_TRUE(recorder_->ResetSlot(3, 0).ok());
  Draft(0, 5, 1);
  ASSERT_TRUE(recorder_->ResetSlot(3, 1000).ok());
  Draft(1000, 3, 2);
  ExpectReplaysExactly(2);
}

TEST_F(RecordingEngineTest, ASecondRowKindEndsTheRecordingAndNotTheService) {
  ASSERT_TRUE(recorder_->ResetSlot(3, 0).ok());
  Draft(0, 5, 1);
  const std::vector<Bf16> rows = Rows(1, RowKind::kMainX);
  StepEntry entry;
  entry.rows = {.slot = 3, .position = 5, .kind = RowKind::kMainX, .row_count = 1, .values = rows};
  EXPECT_TRUE(recorder_->Step({.entries = {&entry, 1}}).ok());
  Draft(6, 1, 2);
  EXPECT_THAT(std::string(recorder_->Finish().message()), HasSubstr("both taps and main_x"));
  EXPECT_FALSE(fs::exists(dir_));
}

TEST_F(RecordingEngineTest, AFailedStepIsNotRecorded) {
  ASSERT_TRUE(recorder_->ResetSlot(3, 0).ok());
  Draft(0, 5, 1);
  StepEntry entry;
  entry.rows.slot = 3;
  entry.rows.position = 99;
  EXPECT_FALSE(recorder_->Step({.entries = {&entry, 1}}).ok());
  EXPECT_EQ(recorder_->round_count(), 1);
  ExpectReplaysExactly(1);
}

TEST_F(RecordingEngineTest, AFolderWithSomethingInItIsRefused) {
  fs::create_directories(fs::path(dir_) / "x");
  const auto refused = RecordingEngine::Create(NewEngine(), dir_);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("not empty"));
}

}  // namespace
}  // namespace tp2
