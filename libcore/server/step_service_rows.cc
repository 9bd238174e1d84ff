// INSERT and STEP: what reaches the engine, and what happens when it fails.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/server/profile_range.h"
#include "libcore/server/step_service.h"

namespace tp2::server {
namespace {

using contract::Code;

uint32_t Us32(int64_t ns) {
  return static_cast<uint32_t>(
      std::clamp<int64_t>(ns / 1000, 0, std::numeric_limits<uint32_t>::max()));
}

std::span<const Bf16> RowValues(std::span<const std::byte> row_area, size_t first_byte,
                                size_t byte_count) {
  // Frames are aligned to 64 bytes and rows begin at multiples of 64 in them.
  const std::span<const std::byte> bytes = row_area.subspan(first_byte, byte_count);
  return {reinterpret_cast<const Bf16*>(bytes.data()), bytes.size() / sizeof(Bf16)};
}

contract::StepReplyEntry EntryReply(const EntryOutput& output, const contract::StepMessage& step) {
  contract::StepReplyEntry entry;
  for (int i = 0; i < step.n_out; ++i) {
    entry.tokens[i] = output.tokens[i];
    if ((step.flags & contract::kStepWantConfidence) != 0) {
      entry.confidence[i] = output.confidence_logit[i];
    }
    if ((step.flags & contract::kStepWantMargin) != 0) {
      entry.margin[i] = output.margin[i];
      entry.runner_up[i] = static_cast<uint32_t>(output.runner_up[i]);
    }
  }
  entry.window_rows = static_cast<uint16_t>(output.window_rows);
  return entry;
}

}  // namespace

void StepService::Insert(Session* session, const ServiceRequest& request, ReplyFrame* reply) {
  const contract::InsertMessage& insert = body_.insert;
  SlotWindow after;
  const Code code = contract::ValidateInsert(insert, limits_, session->grant, slots_, &after);
  if (code != Code::kOk) return reply->Refuse(code);
  if (IsBudgetSpent(request)) return reply->Refuse(Code::kDeadline);
  const InsertRows rows{.slot = insert.slot,
                        .position = static_cast<int64_t>(insert.position),
                        .kind = static_cast<RowKind>(insert.row_kind),
                        .row_count = insert.rows,
                        .values = RowValues(insert.row_area, 0, insert.row_area.size())};
  const int64_t begin_ns = clock_->NowNs();
  absl::Status status = InsertInEngine(rows);
  if (status.ok() && !(engine_->window(insert.slot) == after)) {
    status = MakeError(absl::StatusCode::kInternal,
                       {.what = "slot window", .expected = "the contract's", .got = "another"});
  }
  if (!status.ok()) {
    Code refusal = NoteFailure(/*is_step=*/false, status);
    if (refusal == Code::kInternal && RestoreSlot(insert.slot) == Code::kNeedsResync) {
      refusal = Code::kNeedsResync;
    }
    return reply->Refuse(refusal);
  }
  session->unmirrored[session->unmirrored_count++] = rows;
  slots_.SetWindow(insert.slot, after);
  health_.NoteInsert();
  metrics_.ObserveInsert((clock_->NowNs() - begin_ns) / 1000);
  contract::EncodeInsertReply(
      {.slot = insert.slot,
       .window_rows = static_cast<uint16_t>(after.WindowRows(limits_.window_rows)),
       .generation = insert.generation,
       .length = static_cast<uint64_t>(after.length()),
       .insert_us = Us32(clock_->NowNs() - begin_ns)},
      reply->Body(contract::kInsertReplyBytes));
}

absl::Status StepService::InsertInEngine(const InsertRows& rows) {
  const ProfileRange range("insert", static_cast<uint64_t>(rows.position));
  return engine_->Insert(rows);
}

absl::StatusOr<StepOutputs> StepService::StepInEngine(const contract::StepMessage& step) {
  const ProfileRange range("step", step.round);
  return engine_->Step(EngineRequest(step));
}

StepRequest StepService::EngineRequest(const contract::StepMessage& step) {
  for (int i = 0; i < step.entry_count; ++i) {
    const contract::StepMessageEntry& entry = step.entries[i];
    engine_entries_[i] = {
        .rows = {.slot = entry.slot,
                 .position = static_cast<int64_t>(entry.position),
                 .kind = static_cast<RowKind>(step.row_kind),
                 .row_count = entry.rows,
                 .values = RowValues(step.row_area, size_t{entry.first_row} * step.row_bytes,
                                     size_t{entry.rows} * step.row_bytes)},
        .anchor = static_cast<int32_t>(entry.anchor)};
  }
  return {.entries = std::span(engine_entries_).first(step.entry_count),
          .n_out = step.n_out,
          .wants_margins = (step.flags & contract::kStepWantMargin) != 0};
}

void StepService::Step(Session* session, const ServiceRequest& request, ReplyFrame* reply) {
  const contract::StepMessage& step = body_.step;
  // The decoder could not read the entries of an impossible count.
  if (step.entry_count < 1 || step.entry_count > kMaxRequests) {
    return reply->Refuse(Code::kBadRequest);
  }
  const contract::StepVerdict verdict =
      contract::ValidateStep(step, limits_, session->grant, slots_);
  if (verdict.code != Code::kOk && verdict.code != Code::kBadEntry) {
    return reply->Refuse(verdict.code);
  }
  contract::StepReply body;
  body.entry_count = step.entry_count;
  body.n_out = step.n_out;
  body.flags = step.flags;
  body.round = step.round;
  for (int i = 0; i < step.entry_count; ++i) {
    body.entries[i].slot = step.entries[i].slot;
    body.entries[i].generation = step.entries[i].generation;
    body.entries[i].status =
        static_cast<uint16_t>(i == verdict.bad_entry ? verdict.entry_code : Code::kNotRun);
  }
  const int64_t begin_ns = clock_->NowNs();
  body.queue_us = Us32(begin_ns - request.arrival_ns);
  if (verdict.code == Code::kBadEntry) {
    reply->code = Code::kBadEntry;
  } else if (IsBudgetSpent(request)) {
    return reply->Refuse(Code::kDeadline);
  } else {
    const absl::StatusOr<StepOutputs> outputs = StepInEngine(step);
    const int64_t end_ns = clock_->NowNs();
    body.total_us = Us32(end_ns - begin_ns);
    trace_.Add({.session = session->grant.session,
                .round = step.round,
                .trace_id = request.header.trace_id,
                .entries = step.entry_count,
                .rows = static_cast<int>(step.rows),
                .n_out = step.n_out,
                .is_good = outputs.ok(),
                .arrival_ns = request.arrival_ns,
                .begin_ns = begin_ns,
                .insert_ns = outputs.ok() ? outputs->insert_ns : 0,
                .draft_ns = outputs.ok() ? outputs->draft_ns : 0,
                .end_ns = end_ns});
    if (outputs.ok()) {
      AcceptStep(session, verdict, *outputs, reply, &body);
    } else {
      FailStep(outputs.status(), reply, &body);
    }
  }
  body.failures_in_a_row = static_cast<uint32_t>(health_.failures_in_a_row());
  contract::EncodeStepReply(body, reply->Body(contract::StepReplyBytes(body.entry_count)));
}

void StepService::AcceptStep(Session* session, const contract::StepVerdict& verdict,
                             const StepOutputs& outputs, ReplyFrame* reply,
                             contract::StepReply* body) {
  const contract::StepMessage& step = body_.step;
  bool is_consistent = outputs.entries.size() == step.entry_count;
  for (int i = 0; is_consistent && i < step.entry_count; ++i) {
    is_consistent = engine_->window(step.entries[i].slot) == verdict.after[i];
  }
  if (!is_consistent) {
    return FailStep(MakeError(absl::StatusCode::kInternal, {.what = "engine outputs",
                                                            .expected = "the contract's windows",
                                                            .got = "others"}),
                    reply, body);
  }
  for (int i = 0; i < step.entry_count; ++i) {
    const int slot = step.entries[i].slot;
    session->unmirrored[session->unmirrored_count++] = engine_entries_[i].rows;
    slots_.SetWindow(slot, verdict.after[i]);
    body->entries[i] = EntryReply(outputs.entries[i], step);
    body->entries[i].slot = static_cast<uint16_t>(slot);
    body->entries[i].generation = step.entries[i].generation;
    body->entries[i].length = static_cast<uint64_t>(verdict.after[i].length());
    NoteFeedback(step.entries[i]);
    last_n_out_[slot] = step.n_out;
  }
  body->insert_us = Us32(outputs.insert_ns);
  body->draft_us = Us32(outputs.draft_ns);
  health_.NoteGoodStep(body->total_us);
  metrics_.ObserveStep({.entries = step.entry_count,
                        .n_out = step.n_out,
                        .queue_us = body->queue_us,
                        .insert_us = body->insert_us,
                        .draft_us = body->draft_us,
                        .total_us = body->total_us});
}

void StepService::NoteFeedback(const contract::StepMessageEntry& entry) {
  if (entry.accepted_plus_one == 0) return;
  statistics_.NoteFeedback(last_n_out_[entry.slot], entry.accepted_plus_one - 1);
}

void StepService::FailStep(const absl::Status& status, ReplyFrame* reply,
                           contract::StepReply* body) {
  reply->code = NoteFailure(/*is_step=*/true, status);
  for (int i = 0; i < body->entry_count; ++i) {
    const int slot = body_.step.entries[i].slot;
    const Code entry_code = reply->code == Code::kInternal ? RestoreSlot(slot) : reply->code;
    contract::StepReplyEntry& entry = body->entries[i];
    entry.status = static_cast<uint16_t>(entry_code);
    entry.generation = slots_.at(slot).generation;
    entry.length = static_cast<uint64_t>(slots_.at(slot).window.length());
  }
}

contract::Code StepService::NoteFailure(bool is_step, const absl::Status& status) {
  const std::string reason(status.message());
  const int failures = health_.NoteFailure(is_step, reason);
  spdlog::error("engine failed: {} failures_in_a_row={}", reason, failures);
  statistics_.NoteError(reason);
  if (!engine_->is_healthy()) {
    is_engine_lost_ = true;
    must_exit_ = true;
    health_.Poison(reason);
    return Code::kUnhealthy;
  }
  if (failures >= options_.max_strikes) {
    must_exit_ = true;
    health_.Poison(reason);
  }
  return Code::kInternal;
}

absl::StatusOr<EntryOutput> StepService::DraftCanary(int slot) {
  constexpr int kCanaryRows = 2;
  TP2_RETURN_IF_ERROR(engine_->ResetSlot(slot, 0));
  // Small and all different; what they are does not matter, only that they are the same each time.
  std::vector<Bf16> values(kCanaryRows * size_t{limits_.RowBytes(1)} / sizeof(Bf16));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = ToBf16(static_cast<float>(i % 251) / 251.0f - 0.5f);
  }
  const StepEntry entry{.rows = {.slot = slot,
                                 .position = 0,
                                 .kind = RowKind::kTaps,
                                 .row_count = kCanaryRows,
                                 .values = values},
                        .anchor = 1};
  TP2_ASSIGN_OR_RETURN(const StepOutputs outputs,
                       engine_->Step({.entries = {&entry, 1}, .n_out = kBlockRows}));
  if (outputs.entries.size() == 1) return outputs.entries[0];
  return MakeError(
      absl::StatusCode::kInternal,
      {.what = "canary", .expected = "one block", .got = std::to_string(outputs.entries.size())});
}

bool StepService::RunCanary() {
  int slot = slots_.slot_count() - 1;
  while (slot >= 0 && slots_.at(slot).session != 0) --slot;
  if (slot < 0) return false;
  statistics_.NoteCanary();
  absl::StatusOr<EntryOutput> block = DraftCanary(slot);
  if (block.ok() && !first_canary_.has_value()) first_canary_ = *block;
  const bool is_same = block.ok() && block->tokens == first_canary_->tokens &&
                       block->confidence_logit == first_canary_->confidence_logit &&
                       block->margin == first_canary_->margin;
  if (is_same) {
    health_.NoteGoodCanary();
  } else {
    (void)NoteFailure(/*is_step=*/false, block.ok()
                                             ? MakeError(absl::StatusCode::kInternal,
                                                         {.what = "canary",
                                                          .expected = "the drafts of the first one",
                                                          .got = "others"})
                                             : block.status());
  }
  return true;
}

void StepService::MaintainWhileIdle() {
  const absl::Status status = engine_->MaintainWhileIdle();
  if (!status.ok()) (void)NoteFailure(/*is_step=*/false, status);
}

contract::Code StepService::RestoreSlot(int slot) {
  health_.NoteReset();
  const absl::Status status = mirror_.Restore(slot, slots_.at(slot).window, engine_);
  if (status.ok()) return Code::kInternal;
  spdlog::error("slot {} not restored: {}", slot, std::string(status.message()));
  slots_.MarkNeedsResync(slot);
  return Code::kNeedsResync;
}

}  // namespace tp2::server
