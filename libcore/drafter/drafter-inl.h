// Body of the controller: construction, argument checks, context insert, collection of results.
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
#include "libcore/drafter/observe-inl.h"

namespace tp2 {

template <OpSet O>
Drafter<O>::Drafter(EngineInfo info, std::unique_ptr<Checkpoint> checkpoint, std::unique_ptr<O> ops,
                    std::span<const ShardPlan> plans)
    : info_(std::move(info)),
      config_(info_.config),
      checkpoint_(std::move(checkpoint)),
      ops_(std::move(ops)),
      windows_(kSlotCount) {
  std::vector<int32_t> block_out_rows(kMaxBlockRows);
  for (int row = 0; row < kMaxBlockRows; ++row) block_out_rows[row] = row;
  for (const ShardPlan& plan : plans) {
    const RankWeights weights =
        ops_->Place(plan.rank, CutWeights(config_, checkpoint_->weights(), plan));
    ranks_.push_back(std::make_unique<RankType>(*ops_, config_, plan, weights));
    RankType& rank = *ranks_.back();
    ops_->Upload(rank.index, std::span<const int32_t>(block_out_rows), rank.block_out_rows.data());
  }
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
  const int64_t row_values = rows.kind == RowKind::kTaps ? config_.tap_values() : config_.dim;
  if (static_cast<int64_t>(rows.values.size()) != rows.row_count * row_values) {
    return BadArgument("row values", absl::StrCat(rows.row_count * row_values),
                       absl::StrCat(rows.values.size()));
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
  InsertAll({&rows, 1});
  return TakeErrors();
}

// Rows of all inserts together, so that weights are read once. Rows that the same message already
// pushes out of the ring are left out; their positions were mapped before.
template <OpSet O>
void Drafter<O>::InsertAll(std::span<const InsertRows> inserts) {
  for (const RowKind kind : {RowKind::kTaps, RowKind::kMainX}) {
    std::vector<RowSource> rows;
    for (const InsertRows& insert : inserts) {
      if (insert.kind != kind) continue;
      const int64_t row_values = kind == RowKind::kTaps ? config_.tap_values() : config_.dim;
      const int skipped = std::max(0, insert.row_count - config_.ring_rows());
      for (int i = skipped; i < insert.row_count; ++i) {
        rows.push_back({insert.slot, insert.position + i, insert.values.data() + i * row_values});
      }
    }
    for (size_t begin = 0; begin < rows.size(); begin += kMaxRowsPerMessage) {
      const size_t count = std::min<size_t>(kMaxRowsPerMessage, rows.size() - begin);
      ForEachRank(
          [&](RankType& rank) { InsertChunk(rank, kind, std::span(rows).subspan(begin, count)); });
    }
  }
  for (const InsertRows& insert : inserts) {
    windows_[insert.slot].Insert(insert.position, insert.row_count, config_.ring_rows());
  }
}

template <OpSet O>
void Drafter<O>::InsertChunk(RankType& rank, RowKind kind, std::span<const RowSource> rows) {
  const int r = rank.index;
  const int count = static_cast<int>(rows.size());
  const int dim = config_.dim;
  const int64_t row_values = kind == RowKind::kTaps ? config_.tap_values() : dim;
  std::vector<int64_t> positions;
  std::vector<int32_t> out_rows;
  for (int i = 0; i < count; ++i) {
    const RowSource& row = rows[i];
    positions.push_back(row.position);
    out_rows.push_back(row.slot * config_.ring_rows() +
                       static_cast<int32_t>(row.position % config_.ring_rows()));
    ops_->Upload(r, std::span<const Bf16>(row.values, row_values),
                 rank.insert_rows.data() + i * row_values);
  }
  ops_->Upload(r, std::span<const int64_t>(positions), rank.insert_positions.data());
  ops_->Upload(r, std::span<const int32_t>(out_rows), rank.insert_out_rows.data());
  float* main_x = rank.main_x.data();
  if (kind == RowKind::kTaps) {
    ops_->Widen(r, {rank.insert_rows.data(), count * row_values, rank.insert_wide.data()});
    ops_->Linear(r, {&rank.weights.main_proj, rank.insert_wide.data(), row_values, count, main_x});
    ops_->RmsNorm(r, {main_x, rank.weights.main_norm, config_.norm_eps, count, dim, main_x});
  } else {
    ops_->Widen(r, {rank.insert_rows.data(), count * row_values, main_x});
  }
  Observe(rank, "main_x", -1, main_x, {count, dim});
  float* kv = rank.insert_kv.data();
  for (int s = 0; s < config_.stages; ++s) {
    const RankStage& stage = rank.weights.stages[s];
    ops_->Linear(r, {&stage.wkv, main_x, dim, count, kv});
    ops_->RmsNorm(r, {kv, stage.kv_norm, config_.norm_eps, count, config_.head_dim, kv});
    ops_->KvFinish(r, {kv, rank.insert_positions.data(), count, rank.rings[s].data(),
                       rank.insert_out_rows.data()});
  }
}

template <OpSet O>
absl::StatusOr<StepOutputs> Drafter<O>::Step(const StepRequest& request) {
  TP2_RETURN_IF_ERROR(CheckStep(request));
  const int64_t start_ns = clock_.NowNs();
  ops_->Mark(StepMark::kBegin);
  std::vector<InsertRows> inserts;
  for (const StepEntry& entry : request.entries) inserts.push_back(entry.rows);
  InsertAll(inserts);
  const int64_t inserted_ns = clock_.NowNs();
  ops_->Mark(StepMark::kInserted);
  const int requests = static_cast<int>(request.entries.size());
  ForEachRank([&](RankType& rank) { UploadBlock(rank, request); });
  const auto draft = [&] {
    for (int stage = 0; stage < config_.stages; ++stage) RunStage(stage, requests);
    RunHead(requests, request.n_out);
    ops_->CloseStep();
  };
  // An observer copies to the host in between, which a repeated body cannot.
  if (observer_ != nullptr) {
    draft();
  } else {
    ops_->Repeat(requests * (kBlockRows + 1) + request.n_out, draft);
  }
  ops_->Mark(StepMark::kDrafted);
  StepOutputs outputs = Collect(request);
  TP2_RETURN_IF_ERROR(TakeErrors());
  outputs.insert_ns = inserted_ns - start_ns;
  outputs.draft_ns = clock_.NowNs() - inserted_ns;
  outputs.insert_device_ns = ops_->NsBetween(StepMark::kBegin, StepMark::kInserted);
  outputs.draft_device_ns = ops_->NsBetween(StepMark::kInserted, StepMark::kDrafted);
  return outputs;
}

template <OpSet O>
StepOutputs Drafter<O>::Collect(const StepRequest& request) {
  const int requests = static_cast<int>(request.entries.size());
  const RankType& rank = *ranks_[0];
  std::vector<int32_t> tokens(kMaxRequests * kTokensPerRequest), runner_up(kMaxBlockRows);
  std::vector<float> margin(kMaxBlockRows), confidence(kMaxBlockRows);
  ops_->Download(rank.index, rank.tokens.data(), std::span(tokens));
  ops_->Download(rank.index, rank.runner_up.data(), std::span(runner_up));
  ops_->Download(rank.index, rank.margin.data(), std::span(margin));
  ops_->Download(rank.index, rank.confidence.data(), std::span(confidence));
  StepOutputs outputs;
  for (int i = 0; i < requests; ++i) {
    EntryOutput& entry = outputs.entries.emplace_back();
    entry.tokens.fill(-1);
    entry.runner_up.fill(-1);
    entry.confidence_logit.fill(0.0f);
    entry.margin.fill(0.0f);
    for (int j = 0; j < request.n_out; ++j) {
      entry.tokens[j] = tokens[i * kTokensPerRequest + 1 + j];
      entry.runner_up[j] = runner_up[i * kBlockRows + j];
      entry.margin[j] = margin[i * kBlockRows + j];
      entry.confidence_logit[j] = confidence[i * kBlockRows + j];
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
