#include "cmd/dspark-selftest/twin.h"

#include <array>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/client/synthetic_rows.h"

namespace tp2::selftest {
namespace {

using contract::Code;

absl::Status Differs(const std::string& what, const std::string& local, const std::string& worker) {
  return MakeError(absl::StatusCode::kAborted,
                   {.what = what, .expected = "local " + local, .got = "worker " + worker});
}

std::string Bits(float value) {
  return absl::StrFormat("%.9g (%08x)", value, std::bit_cast<uint32_t>(value));
}

absl::Status CompareEntry(int request, int n_out, const EntryOutput& local,
                          const contract::StepReplyEntry& worker) {
  for (int i = 0; i < kBlockRows; ++i) {
    const std::string at = absl::StrCat("request ", request, " draft ", i, " ");
    const bool is_asked = i < n_out;
    const int32_t token = is_asked ? local.tokens[i] : -1;
    const uint32_t runner_up = is_asked ? static_cast<uint32_t>(local.runner_up[i]) : 0;
    const float confidence = is_asked ? local.confidence_logit[i] : 0;
    const float margin = is_asked ? local.margin[i] : 0;
    if (token != worker.tokens[i]) {
      return Differs(at + "token", absl::StrCat(token), absl::StrCat(worker.tokens[i]));
    }
    if (std::bit_cast<uint32_t>(confidence) != std::bit_cast<uint32_t>(worker.confidence[i])) {
      return Differs(at + "confidence", Bits(confidence), Bits(worker.confidence[i]));
    }
    if (std::bit_cast<uint32_t>(margin) != std::bit_cast<uint32_t>(worker.margin[i])) {
      return Differs(at + "margin", Bits(margin), Bits(worker.margin[i]));
    }
    if (runner_up != worker.runner_up[i]) {
      return Differs(at + "runner-up", absl::StrCat(runner_up), absl::StrCat(worker.runner_up[i]));
    }
  }
  if (local.window_rows == worker.window_rows) return absl::OkStatus();
  return Differs(absl::StrCat("request ", request, " window rows"), absl::StrCat(local.window_rows),
                 absl::StrCat(worker.window_rows));
}

}  // namespace

absl::Status ExpectCode(const char* what, Code expected, Code got) {
  if (expected == got) return absl::OkStatus();
  return MakeError(absl::StatusCode::kAborted,
                   {.what = what, .expected = CodeName(expected), .got = CodeName(got)});
}

std::vector<Bf16> Twin::NewRows(int local, int64_t position, int row_count) {
  std::vector<Bf16> rows;
  client::AppendSyntheticRows({.seed = ++seed_,
                               .slot = local,
                               .position = position,
                               .row_count = row_count,
                               .row_values = engine_->info().config.tap_values()},
                              &rows);
  return rows;
}

absl::StatusOr<TwinSlot> Twin::Open(int local, int64_t base) {
  TP2_ASSIGN_OR_RETURN(const auto answer, client_->Open({.base = static_cast<uint64_t>(base)}));
  TP2_RETURN_IF_ERROR(ExpectCode("OPEN", Code::kOk, answer.code));
  TP2_RETURN_IF_ERROR(engine_->ResetSlot(local, base));
  return TwinSlot{.local = local,
                  .slot = answer.value->slot,
                  .generation = answer.value->generation,
                  .base = base,
                  .length = base};
}

absl::Status Twin::Close(const TwinSlot& slot) {
  TP2_ASSIGN_OR_RETURN(const auto answer,
                       client_->Close({.slot = slot.slot, .generation = slot.generation}));
  return ExpectCode("CLOSE", Code::kOk, answer.code);
}

absl::Status Twin::Insert(TwinSlot* slot, int64_t position, int row_count) {
  const std::vector<Bf16> rows = NewRows(slot->local, position, row_count);
  const uint64_t length = static_cast<uint64_t>(position + row_count);
  const auto answer = client_->Insert(
      {.slot = slot->slot,
       .row_kind = static_cast<uint16_t>(RowKind::kTaps),
       .rows = static_cast<uint16_t>(row_count),
       .generation = slot->generation,
       .position = static_cast<uint64_t>(position),
       .expected_length = length,
       .row_bytes = static_cast<uint32_t>(engine_->info().config.tap_values() * sizeof(Bf16)),
       .row_area = std::as_bytes(std::span(rows))});
  if (!answer.ok()) return answer.status();
  TP2_RETURN_IF_ERROR(ExpectCode("INSERT", Code::kOk, answer->code));
  TP2_RETURN_IF_ERROR(engine_->Insert({.slot = slot->local,
                                       .position = position,
                                       .kind = RowKind::kTaps,
                                       .row_count = row_count,
                                       .values = rows}));
  slot->length = position + row_count;
  return absl::OkStatus();
}

BuiltStep Twin::Build(std::span<const StepPart> parts, int n_out) {
  BuiltStep step;
  contract::StepMessage& message = step.message;
  message.n_out = static_cast<uint16_t>(n_out);
  message.flags = contract::kStepWantMargin | contract::kStepWantConfidence;
  message.row_bytes = static_cast<uint32_t>(engine_->info().config.tap_values() * sizeof(Bf16));
  for (const StepPart& part : parts) {
    const uint64_t length = static_cast<uint64_t>(part.position + part.row_count);
    message.entries[message.entry_count++] = {.slot = part.slot->slot,
                                              .rows = static_cast<uint16_t>(part.row_count),
                                              .anchor = part.anchor,
                                              .generation = part.slot->generation,
                                              .position = static_cast<uint64_t>(part.position),
                                              .anchor_position = length,
                                              .first_row = message.rows,
                                              .expected_length = length,
                                              .tag = 0};
    message.rows += static_cast<uint32_t>(part.row_count);
    const std::vector<Bf16> rows = NewRows(part.slot->local, part.position, part.row_count);
    step.rows.insert(step.rows.end(), rows.begin(), rows.end());
  }
  message.rows_offset = static_cast<uint32_t>(contract::StepHeadBytes(message.entry_count));
  message.row_area = std::as_bytes(std::span(step.rows));
  return step;
}

absl::StatusOr<StepOutputs> Twin::StepLocal(std::span<const StepPart> parts,
                                            const BuiltStep& step) {
  std::array<StepEntry, kMaxRequests> entries;
  const size_t row_values = static_cast<size_t>(engine_->info().config.tap_values());
  for (size_t i = 0; i < parts.size(); ++i) {
    const contract::StepMessageEntry& entry = step.message.entries[i];
    entries[i] = {.rows = {.slot = parts[i].slot->local,
                           .position = parts[i].position,
                           .kind = RowKind::kTaps,
                           .row_count = parts[i].row_count,
                           .values = std::span(step.rows).subspan(entry.first_row * row_values,
                                                                  entry.rows * row_values)},
                  .anchor = static_cast<int32_t>(parts[i].anchor)};
  }
  return engine_->Step(
      {.entries = std::span(entries).first(parts.size()), .n_out = step.message.n_out});
}

absl::StatusOr<contract::StepReply> Twin::Step(std::span<const StepPart> parts, int n_out) {
  const BuiltStep step = Build(parts, n_out);
  const SteadyClock clock;
  const int64_t begin_ns = clock.NowNs();
  TP2_ASSIGN_OR_RETURN(const auto answer, client_->Step(step.message));
  last_worker_ns_ = clock.NowNs() - begin_ns;
  TP2_RETURN_IF_ERROR(ExpectCode("STEP", Code::kOk, answer.code));
  TP2_ASSIGN_OR_RETURN(const StepOutputs local, StepLocal(parts, step));
  for (size_t i = 0; i < parts.size(); ++i) {
    TP2_RETURN_IF_ERROR(
        CompareEntry(static_cast<int>(i), n_out, local.entries[i], answer.value->entries[i]));
    parts[i].slot->length = parts[i].position + parts[i].row_count;
  }
  return *answer.value;
}

}  // namespace tp2::selftest
