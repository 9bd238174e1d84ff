#include "libcore/contract/validate.h"

#include <algorithm>
#include <array>

#include "libcore/contract/all_finite.h"

namespace tp2::contract {
namespace {

constexpr uint16_t kTaps = 1;
constexpr uint16_t kMainX = 2;

// Row kind and row bytes, shared by INSERT and STEP: feature first, then fields.
Code CheckRowKind(uint16_t row_kind, uint32_t row_bytes, const WorkerLimits& worker,
                  const SessionGrant& grant) {
  if (row_kind == kMainX && (grant.features & kFeatureMainX) == 0) return Code::kUnsupported;
  if (row_kind != kTaps && row_kind != kMainX) return Code::kBadRequest;
  return row_bytes == worker.RowBytes(row_kind) ? Code::kOk : Code::kBadRequest;
}

Code CheckPosition(const SlotWindow& window, uint64_t position, uint64_t rows,
                   int64_t position_limit) {
  // Beyond the table is impossible whatever the slot holds; with this bound the cast below is safe.
  if (position > static_cast<uint64_t>(position_limit) ||
      rows > static_cast<uint64_t>(position_limit) - position) {
    return Code::kBadRequest;
  }
  switch (window.Check(static_cast<int64_t>(position))) {
    case InsertVerdict::kPositionGap:
      return Code::kPositionGap;
    case InsertVerdict::kRollbackTooFar:
      return Code::kRollbackTooFar;
    case InsertVerdict::kOk:
      return Code::kOk;
  }
  return Code::kBadRequest;
}

Code CheckStepFields(const StepMessage& step, const WorkerLimits& worker,
                     const SessionGrant& grant) {
  if ((step.flags & kStepWantMargin) != 0 && (grant.features & kFeatureMargin) == 0) {
    return Code::kUnsupported;
  }
  if ((step.flags & kStepDebug) != 0 && (grant.features & kFeatureDebug) == 0) {
    return Code::kUnsupported;
  }
  const Code code = CheckRowKind(step.row_kind, step.row_bytes, worker, grant);
  if (code != Code::kOk) return code;
  const bool is_possible = step.entry_count >= 1 && step.entry_count <= grant.requests &&
                           step.n_out >= 1 && step.n_out <= grant.n_out &&
                           step.rows <= kMaxRowsPerMessage &&
                           step.rows_offset == kStepHeadBytes + step.entry_count * kStepEntryBytes;
  return is_possible ? Code::kOk : Code::kBadRequest;
}

// `first_row` is where the entry's rows must begin.
Code CheckEntry(const StepMessage& step, int index, uint32_t first_row, const WorkerLimits& worker,
                const SessionGrant& grant, const SlotTable& slots, SlotWindow* after) {
  const StepMessageEntry& entry = step.entries[index];
  Code code = slots.CheckOwner(grant.session, entry.slot, entry.generation);
  if (code != Code::kOk) return code;
  for (int i = 0; i < index; ++i) {
    if (step.entries[i].slot == entry.slot) return Code::kBadRequest;
  }
  const bool is_last = index + 1 == step.entry_count;
  const uint32_t left = step.rows - first_row;
  if (entry.rows > left || (is_last && entry.rows != left) || entry.first_row != first_row) {
    return Code::kBadRequest;
  }
  const SlotWindow& window = slots.at(entry.slot).window;
  // The anchor and the block behind it need positions of their own.
  code = CheckPosition(window, entry.position, entry.rows, worker.max_positions - kBlockRows);
  if (code != Code::kOk) return code;
  const uint64_t length = entry.position + entry.rows;
  if (entry.anchor_position != length) return Code::kBadRequest;
  if (entry.anchor >= worker.vocab) return Code::kBadRequest;
  if (entry.expected_length != length) return Code::kBadRequest;
  if (entry.accepted_plus_one > kBlockRows + 1) return Code::kBadRequest;
  *after = window;
  after->Insert(static_cast<int64_t>(entry.position), entry.rows, worker.ring_rows);
  if (after->is_empty()) return Code::kEmptyWindow;
  const std::span<const std::byte> rows = step.row_area.subspan(
      size_t{first_row} * step.row_bytes, size_t{entry.rows} * step.row_bytes);
  return AllFinite(rows) ? Code::kOk : Code::kNonfiniteRows;
}

}  // namespace

HelloVerdict ValidateHello(const HelloRequest& hello, const WorkerLimits& worker) {
  if (hello.lowest_version > kVersion || hello.highest_version < kVersion) {
    return {Code::kVersionUnsupported, kFieldNone};
  }
  const bool is_possible = hello.n_out >= 1 && hello.n_out <= kBlockRows && hello.requests >= 1 &&
                           hello.requests <= kMaxRequests && hello.slots <= worker.slot_count &&
                           hello.largest_reply_bytes >= kMaxReplyBytes;
  if (!is_possible) return {Code::kBadRequest, kFieldNone};
  if (hello.identity != worker.identity) return {Code::kIdentityMismatch, kFieldIdentity};
  // Single fields before the digest that covers them: they say what differs.
  const struct {
    bool is_equal;
    HelloField field;
  } checks[] = {
      {hello.vocab == worker.vocab, kFieldVocab},
      {hello.hidden == worker.hidden, kFieldHidden},
      {hello.taps == worker.taps, kFieldTaps},
      {hello.row_dtype == kRowDtypeBf16, kFieldRowDtype},
      {hello.row_bytes == worker.RowBytes(kTaps), kFieldRowBytes},
      {hello.window_rows == worker.window_rows, kFieldWindow},
      {hello.max_model_length <= worker.max_positions, kFieldMaxModelLength},
      {hello.config == worker.config, kFieldConfig},
      {(hello.features & kFeatureStrictNumerics) == 0 || hello.numerics == worker.numerics,
       kFieldNumerics},
  };
  for (const auto& check : checks) {
    if (!check.is_equal) return {Code::kConfigMismatch, check.field};
  }
  return {};
}

SessionGrant GrantOf(const HelloRequest& hello, const WorkerLimits& worker, uint64_t session) {
  return {.session = session,
          .features = hello.features & worker.features,
          .requests = hello.requests,
          .n_out = hello.n_out,
          .slots = hello.slots};
}

Code ValidateOpen(const OpenRequest& open, const WorkerLimits& worker) {
  return open.base < static_cast<uint64_t>(worker.max_positions) ? Code::kOk : Code::kBadRequest;
}

Code ValidateInsert(const InsertMessage& insert, const WorkerLimits& worker,
                    const SessionGrant& grant, const SlotTable& slots, SlotWindow* after) {
  Code code = CheckRowKind(insert.row_kind, insert.row_bytes, worker, grant);
  if (code != Code::kOk) return code;
  code = slots.CheckOwner(grant.session, insert.slot, insert.generation);
  if (code != Code::kOk) return code;
  if (insert.rows < 1 || insert.rows > kMaxRowsPerMessage) return Code::kBadRequest;
  const SlotWindow& window = slots.at(insert.slot).window;
  code = CheckPosition(window, insert.position, insert.rows, worker.max_positions);
  if (code != Code::kOk) return code;
  if (insert.expected_length != insert.position + insert.rows) return Code::kBadRequest;
  *after = window;
  after->Insert(static_cast<int64_t>(insert.position), insert.rows, worker.ring_rows);
  return AllFinite(insert.row_area) ? Code::kOk : Code::kNonfiniteRows;
}

StepVerdict ValidateStep(const StepMessage& step, const WorkerLimits& worker,
                         const SessionGrant& grant, const SlotTable& slots) {
  StepVerdict verdict;
  verdict.code = CheckStepFields(step, worker, grant);
  if (verdict.code != Code::kOk) return verdict;
  uint32_t first_row = 0;
  for (int i = 0; i < step.entry_count; ++i) {
    verdict.entry_code = CheckEntry(step, i, first_row, worker, grant, slots, &verdict.after[i]);
    if (verdict.entry_code != Code::kOk) {
      verdict.code = Code::kBadEntry;
      verdict.bad_entry = i;
      return verdict;
    }
    first_row += step.entries[i].rows;
  }
  return verdict;
}

}  // namespace tp2::contract
