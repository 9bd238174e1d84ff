// Body of the controller: construction, argument checks, the order of a STEP, its results.
#pragma once

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/drafter/block-inl.h"
#include "libcore/drafter/drafter.h"
#include "libcore/drafter/insert-inl.h"
#include "libcore/drafter/observe-inl.h"
#include "libcore/drafter/replicas-inl.h"

namespace tp2 {

template <OpSet O>
Drafter<O>::Drafter(EngineInfo info, std::unique_ptr<Checkpoint> checkpoint, std::unique_ptr<O> ops,
                    std::span<const ShardPlan> plans)
    : info_(std::move(info)),
      config_(info_.config),
      checkpoint_(std::move(checkpoint)),
      ops_(std::move(ops)),
      windows_(kSlotCount) {
  const int first = plans.front().rank;
  const int64_t step_bytes = StepMemory<std::vector<std::byte>>::ByteCount(config_.tap_values());
  staged_ = StepMemory(ops_->template AllocateHost<std::byte>(first, step_bytes));
  result_ = ops_->template AllocateHost<StepResult>(first, 1);
  for (const ShardPlan& plan : plans) {
    const RankWeights weights =
        ops_->Place(plan.rank, CutWeights(config_, checkpoint_->weights(), plan));
    ranks_.push_back(std::make_unique<RankType>(*ops_, config_, plan, weights));
  }
}

template <OpSet O>
absl::Status Drafter<O>::Record() {
  const std::vector<GraphKey> keys = AllGraphKeys();
  for (const GraphKey& key : keys) ops_->Record(key, [&] { Enqueue(key); });
  staged_.head() = StepHead();
  ForEachRank([&](RankType& rank) { Send(rank, 0); });
  for (const GraphKey& key : keys) Run(key);
  return TakeErrors();
}

inline absl::Status BadArgument(const std::string& what, const std::string& expected,
                                const std::string& got) {
  return MakeError(absl::StatusCode::kOutOfRange,
                   {.what = what, .expected = expected, .got = got, .where = "", .next = ""});
}

template <OpSet O>
absl::Status Drafter<O>::CheckInsert(const InsertRows& rows) const {
  if (!is_healthy()) {
    return MakeError(absl::StatusCode::kAborted,
                     {.what = "drafter",
                      .expected = "working devices",
                      .got = "a poisoned pair or an earlier device fault",
                      .next = "restart the process"});
  }
  if (rows.slot < 0 || rows.slot >= kSlotCount) {
    return BadArgument("slot", absl::StrCat("0 to ", kSlotCount - 1), absl::StrCat(rows.slot));
  }
  if (rows.row_count < 0 || rows.row_count > kMaxRowsPerMessage) {
    return BadArgument("rows", absl::StrCat("0 to ", kMaxRowsPerMessage),
                       absl::StrCat(rows.row_count));
  }
  if (rows.kind != RowKind::kTaps && rows.kind != RowKind::kMainX) {
    return BadArgument("row kind", "taps (1) or main_x (2)",
                       absl::StrCat(static_cast<int>(rows.kind)));
  }
  const int64_t value_count = rows.row_count * RowValues(rows.kind);
  if (static_cast<int64_t>(rows.values.size()) != value_count) {
    return BadArgument("row values", absl::StrCat(value_count), absl::StrCat(rows.values.size()));
  }
  const SlotWindow& window = windows_[rows.slot];
  switch (window.Check(rows.position)) {
    case InsertVerdict::kOk:
      break;
    case InsertVerdict::kPositionGap:
      return BadArgument("insert position", absl::StrCat("at most the length ", window.length()),
                         absl::StrCat(rows.position));
    case InsertVerdict::kRollbackTooFar:
      return BadArgument("insert position",
                         absl::StrCat("at least the oldest row ", window.oldest()),
                         absl::StrCat(rows.position));
  }
  if (rows.position + rows.row_count > info_.max_positions) {
    return BadArgument("length", absl::StrCat("at most ", info_.max_positions),
                       absl::StrCat(rows.position + rows.row_count));
  }
  return absl::OkStatus();
}

template <OpSet O>
absl::Status Drafter<O>::CheckStep(const StepRequest& request) const {
  const int count = static_cast<int>(request.entries.size());
  if (count < 1 || count > kMaxRequests) {
    return BadArgument("requests", absl::StrCat("1 to ", kMaxRequests), absl::StrCat(count));
  }
  if (request.n_out < 1 || request.n_out > kBlockRows) {
    return BadArgument("n_out", absl::StrCat("1 to ", kBlockRows), absl::StrCat(request.n_out));
  }
  std::array<bool, kSlotCount> is_taken{};
  for (const StepEntry& entry : request.entries) {
    TP2_RETURN_IF_ERROR(CheckInsert(entry.rows));
    if (std::exchange(is_taken[entry.rows.slot], true)) {
      return BadArgument("slot", "each slot once", absl::StrCat(entry.rows.slot, " twice"));
    }
    if (entry.anchor < 0 || entry.anchor >= config_.vocab) {
      return BadArgument("anchor", absl::StrCat("a token below ", config_.vocab),
                         absl::StrCat(entry.anchor));
    }
    SlotWindow after = windows_[entry.rows.slot];
    after.Insert(entry.rows.position, entry.rows.row_count, config_.ring_rows());
    if (after.is_empty()) {
      return BadArgument("window", "at least one context row", "none");
    }
  }
  return absl::OkStatus();
}

template <OpSet O>
absl::Status Drafter<O>::TakeErrors() {
  absl::Status first = absl::OkStatus();
  ForEachRank([&](RankType& rank) {
    const absl::Status status = ops_->error(rank.index).Take();
    if (first.ok()) first = status;
  });
  if (!first.ok()) ops_->Recover();
  return first;
}

template <OpSet O>
absl::Status Drafter<O>::ResetSlot(int slot, int64_t base) {
  if (slot < 0 || slot >= kSlotCount) {
    return BadArgument("slot", absl::StrCat("0 to ", kSlotCount - 1), absl::StrCat(slot));
  }
  if (base < 0 || base >= info_.max_positions) {
    return BadArgument("base position", absl::StrCat("0 to ", info_.max_positions - 1),
                       absl::StrCat(base));
  }
  windows_[slot] = SlotWindow(base);
  return absl::OkStatus();
}

template <OpSet O>
absl::Status Drafter<O>::Insert(const InsertRows& rows) {
  TP2_RETURN_IF_ERROR(CheckInsert(rows));
  SendAndInsert({&rows, 1}, nullptr);
  return TakeErrors();
}

template <OpSet O>
absl::StatusOr<StepOutputs> Drafter<O>::Step(const StepRequest& request) {
  TP2_RETURN_IF_ERROR(CheckStep(request));
  const int64_t start_ns = clock_.NowNs();
  std::vector<InsertRows> inserts;
  for (const StepEntry& entry : request.entries) inserts.push_back(entry.rows);
  SendAndInsert(inserts, &request);
  const int64_t inserted_ns = clock_.NowNs();
  ops_->Mark(StepMark::kInserted);
  Run(GraphKey::Draft(static_cast<int>(request.entries.size()), request.n_out,
                      request.wants_margins));
  ops_->Mark(StepMark::kDrafted);
  TP2_RETURN_IF_ERROR(TakeErrors());
  StepOutputs outputs = Collect(request);
  outputs.insert_ns = inserted_ns - start_ns;
  outputs.draft_ns = clock_.NowNs() - inserted_ns;
  const int first = ranks_.front()->index, last = ranks_.back()->index;
  outputs.insert_device_ns = ops_->NsBetween(first, StepMark::kBegin, StepMark::kInserted);
  outputs.draft_device_ns = ops_->NsBetween(first, StepMark::kInserted, StepMark::kDrafted);
  outputs.last_draft_device_ns = ops_->NsBetween(last, StepMark::kInserted, StepMark::kDrafted);
  return outputs;
}

// From the results that the draft has read back.
template <OpSet O>
StepOutputs Drafter<O>::Collect(const StepRequest& request) {
  const StepResult& result = *result_.data();
  StepOutputs outputs;
  for (size_t i = 0; i < request.entries.size(); ++i) {
    EntryOutput& entry = outputs.entries.emplace_back();
    entry.tokens.fill(-1);
    entry.runner_up.fill(-1);
    entry.confidence_logit.fill(0.0f);
    entry.margin.fill(0.0f);
    for (int j = 0; j < request.n_out; ++j) {
      entry.tokens[j] = result.tokens[i * kTokensPerRequest + 1 + j];
      entry.runner_up[j] = result.runner_up[i * kBlockRows + j];
      entry.margin[j] = result.margin[i * kBlockRows + j];
      entry.confidence_logit[j] = result.confidence[i * kBlockRows + j];
    }
    entry.window_rows = windows_[request.entries[i].rows.slot].WindowRows(config_.window);
  }
  if (request.wants_debug) CollectDebug(request, outputs);
  return outputs;
}

template <OpSet O>
void Drafter<O>::CollectDebug(const StepRequest& request, StepOutputs& outputs) {
  const int rows = static_cast<int>(request.entries.size()) * request.n_out;
  outputs.head_hidden.resize(static_cast<size_t>(rows) * config_.dim);
  ops_->Download(ranks_[0]->index, ranks_[0]->hidden.data(), std::span(outputs.head_hidden));
  outputs.base_logits.resize(static_cast<size_t>(rows) * config_.vocab);
  ForEachRank([&](RankType& rank) {
    const Span vocab = rank.plan.vocab;
    for (int row = 0; row < rows; ++row) {
      float* out = outputs.base_logits.data() + static_cast<int64_t>(row) * config_.vocab;
      ops_->Download(rank.index, rank.base.data() + static_cast<int64_t>(row) * vocab.count(),
                     std::span<float>(out + vocab.begin, vocab.count()));
    }
  });
}

}  // namespace tp2
