#include "libcore/parity/recording_engine.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/digest.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2 {

absl::StatusOr<std::unique_ptr<RecordingEngine>> RecordingEngine::Create(
    std::unique_ptr<StepEngine> engine, const std::string& dir) {
  std::error_code error;
  if (std::filesystem::exists(dir, error) && !std::filesystem::is_empty(dir, error)) {
    return MakeError(absl::StatusCode::kInvalidArgument, {.what = absl::StrCat("record ", dir),
                                                          .expected = "no such folder yet",
                                                          .got = "one that is not empty",
                                                          .where = "",
                                                          .next = "choose another name"});
  }
  return std::unique_ptr<RecordingEngine>(new RecordingEngine(std::move(engine), dir));
}

RecordingEngine::RecordingEngine(std::unique_ptr<StepEngine> engine, std::string dir)
    : engine_(std::move(engine)), dir_(std::move(dir)) {
  for (Pending& pending : pending_) pending.base = 0;
}

int64_t RecordingEngine::RowValues() const {
  const DrafterConfig& config = engine_->info().config;
  return *kind_ == RowKind::kTaps ? config.tap_values() : config.dim;
}

absl::Status RecordingEngine::ResetSlot(int slot, int64_t base) {
  TP2_RETURN_IF_ERROR(engine_->ResetSlot(slot, base));
  pending_[slot] = {.base = base, .position = base, .row_count = 0, .values = {}};
  return absl::OkStatus();
}

absl::Status RecordingEngine::Insert(const InsertRows& rows) {
  TP2_RETURN_IF_ERROR(engine_->Insert(rows));
  Take(rows);
  return absl::OkStatus();
}

void RecordingEngine::Take(const InsertRows& rows) {
  if (!record_status_.ok()) return;
  if (!kind_) kind_ = rows.kind;
  if (rows.row_count > 0 && rows.kind != *kind_) {
    record_status_ = MakeError(absl::StatusCode::kFailedPrecondition,
                               {.what = "recording",
                                .expected = "rows of one kind in all rounds",
                                .got = "both taps and main_x",
                                .where = dir_,
                                .next = "record the two in runs of their own"});
    return;
  }
  Pending& pending = pending_[rows.slot];
  const int64_t row_values = RowValues();
  // A rollback into the pending rows cuts them; one before them replaces them.
  const int64_t kept = rows.position - pending.position;
  if (kept < 0 && pending.base) {
    record_status_ = MakeError(absl::StatusCode::kFailedPrecondition,
                               {.what = "recording",
                                .expected = "no rollback behind the rows that a block can hold",
                                .got = absl::StrCat("one to position ", rows.position),
                                .where = dir_,
                                .next = "draft more often, or record without it"});
    return;
  }
  if (pending.row_count == 0 || kept < 0) {
    pending.position = rows.position;
    pending.row_count = 0;
  } else {
    pending.row_count = static_cast<int>(std::min<int64_t>(pending.row_count, kept));
  }
  pending.values.resize(static_cast<size_t>(pending.row_count * row_values));
  pending.values.insert(pending.values.end(), rows.values.begin(), rows.values.end());
  pending.row_count += rows.row_count;
  const int excess = pending.row_count - kMaxRowsPerMessage;
  if (excess > 0) {
    // What is dropped lies outside every window that a later draft can see: the slot starts later
    // instead.
    pending.values.erase(pending.values.begin(), pending.values.begin() + excess * row_values);
    pending.position += excess;
    pending.row_count = kMaxRowsPerMessage;
    pending.base = pending.position;
  }
}

absl::StatusOr<StepOutputs> RecordingEngine::Step(const StepRequest& request) {
  StepRequest complete = request;
  complete.wants_margins = true;  // every capture has them
  TP2_ASSIGN_OR_RETURN(StepOutputs outputs, engine_->Step(complete));
  for (const StepEntry& entry : request.entries) Take(entry.rows);
  if (record_status_.ok()) record_status_ = Record(request, outputs);
  return outputs;
}

absl::Status RecordingEngine::OpenWriter() {
  const EngineInfo& engine = info();
  CaptureInfo capture = CaptureInfoOf(engine.config);
  capture.model_identity = Hex(engine.identity_digest);
  capture.engine = absl::StrCat("dspark ", engine.backend, " ", engine.mode);
  if (engine.portable_bits) capture.numerics_version = engine.numerics_version;
  capture.has_main_x = *kind_ == RowKind::kMainX;
  capture.has_taps = *kind_ == RowKind::kTaps;
  capture.has_confidence = true;
  capture.has_margins = true;
  TP2_ASSIGN_OR_RETURN(CaptureWriter writer, CaptureWriter::Create(dir_, capture));
  writer_.emplace(std::move(writer));
  return absl::OkStatus();
}

absl::Status RecordingEngine::Record(const StepRequest& request, const StepOutputs& outputs) {
  if (!writer_) TP2_RETURN_IF_ERROR(OpenWriter());
  CaptureRound round;
  round.n_out = request.n_out;
  for (size_t i = 0; i < request.entries.size(); ++i) {
    const int slot = request.entries[i].rows.slot;
    Pending& pending = pending_[slot];
    CaptureBlock& block = round.blocks.emplace_back();
    block.slot = slot;
    block.base = pending.base;
    block.position = pending.position;
    block.row_count = pending.row_count;
    (*kind_ == RowKind::kTaps ? block.taps : block.main_x) = pending.values;
    block.anchor = request.entries[i].anchor;
    std::copy(outputs.entries[i].tokens.begin(), outputs.entries[i].tokens.end(),
              block.drafts.begin());
    block.confidence = outputs.entries[i].confidence_logit;
    block.margins = outputs.entries[i].margin;
  }
  TP2_RETURN_IF_ERROR(writer_->Add(round));
  for (const StepEntry& entry : request.entries) {
    const int slot = entry.rows.slot;
    pending_[slot] = {.base = std::nullopt,
                      .position = engine_->window(slot).length(),
                      .row_count = 0,
                      .values = {}};
  }
  return absl::OkStatus();
}

absl::Status RecordingEngine::Finish() {
  TP2_RETURN_IF_ERROR(record_status_);
  return writer_ ? writer_->Finish() : absl::OkStatus();
}

}  // namespace tp2
