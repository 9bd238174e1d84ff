// A drafter that writes a capture of what it is asked and what it drafts, while it serves: what
// stands behind --record. Recording never changes an answer and never fails one: a capture that
// cannot go on ends, and says why in record_status().
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/capture/capture_writer.h"
#include "libcore/drafter/step_engine.h"

namespace tp2 {

// Thread-compatible.
class RecordingEngine final : public StepEngine {
 public:
  // Every STEP of `engine` becomes a round of the capture in `dir`, which appears at Finish. The
  // first rows decide the capture's row kind; rows of the other kind end the recording. Rows that
  // came without a draft go into the slot's next block; of more than a message holds, the newest
  // stay. Errors: kInvalidArgument when `dir` exists and is not empty.
  static absl::StatusOr<std::unique_ptr<RecordingEngine>> Create(std::unique_ptr<StepEngine> engine,
                                                                 const std::string& dir);

  void UseThread() override { engine_->UseThread(); }
  const EngineInfo& info() const override { return engine_->info(); }
  absl::Status ResetSlot(int slot, int64_t base) override;
  const SlotWindow& window(int slot) const override { return engine_->window(slot); }
  absl::Status Insert(const InsertRows& rows) override;
  absl::StatusOr<StepOutputs> Step(const StepRequest& request) override;
  absl::Status MaintainWhileIdle() override { return engine_->MaintainWhileIdle(); }
  bool is_healthy() const override { return engine_->is_healthy(); }
  bool SetObserver(StepObserver* observer) override { return engine_->SetObserver(observer); }

  // Puts the capture in place; nothing appears when no round was recorded. Call once, after the
  // last STEP. Errors: what ended the recording early, or the writer's.
  absl::Status Finish();

  const absl::Status& record_status() const { return record_status_; }
  int64_t round_count() const { return writer_ ? writer_->round_count() : 0; }

 private:
  // Rows that a slot took since its last recorded block.
  struct Pending {
    std::optional<int64_t> base;
    int64_t position = 0;
    int row_count = 0;
    std::vector<Bf16> values;
  };

  RecordingEngine(std::unique_ptr<StepEngine> engine, std::string dir);
  void Take(const InsertRows& rows);
  int64_t RowValues() const;
  absl::Status Record(const StepRequest& request, const StepOutputs& outputs);
  absl::Status OpenWriter();

  std::unique_ptr<StepEngine> engine_;
  std::string dir_;
  std::optional<RowKind> kind_;
  std::optional<CaptureWriter> writer_;
  std::array<Pending, kSlotCount> pending_;
  absl::Status record_status_;
};

}  // namespace tp2
