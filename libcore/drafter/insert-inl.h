// Body of the controller: what a STEP sends to the ranks, and the context insert.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "libcore/drafter/drafter.h"

namespace tp2 {

// Anchors, positions and windows of the block. The windows already hold the STEP's rows.
template <OpSet O>
void Drafter<O>::StageBlock(StepHead& head, const StepRequest& request) const {
  for (size_t i = 0; i < request.entries.size(); ++i) {
    const StepEntry& entry = request.entries[i];
    const SlotWindow& window = windows_[entry.rows.slot];
    head.windows[i] = {window.WindowBegin(config_.window), entry.rows.slot,
                       window.WindowRows(config_.window)};
    for (int j = 0; j < kBlockRows; ++j) {
      head.block_ids[i * kBlockRows + j] = j == 0 ? entry.anchor : config_.noise_token;
      head.block_positions[i * kBlockRows + j] = window.length() + j;
    }
    head.result.tokens[i * kTokensPerRequest] = entry.anchor;
  }
}

// Rows of all inserts together, so that weights are read once. Rows that the same message already
// pushes out of the ring are left out; their positions were mapped before.
template <OpSet O>
auto Drafter<O>::ChunksOf(std::span<const InsertRows> inserts) const -> std::vector<InsertChunk> {
  std::vector<InsertChunk> chunks;
  for (const RowKind kind : {RowKind::kTaps, RowKind::kMainX}) {
    size_t room = 0;
    for (const InsertRows& insert : inserts) {
      if (insert.kind != kind) continue;
      const int skipped = std::max(0, insert.row_count - config_.ring_rows());
      for (int i = skipped; i < insert.row_count; ++i) {
        if (room == 0) {
          chunks.push_back({kind, RowValues(kind), {}});
          room = kMaxRowsPerMessage;
        }
        chunks.back().rows.push_back(
            {insert.slot, insert.position + i, insert.values.data() + i * RowValues(kind)});
        --room;
      }
    }
  }
  return chunks;
}

template <OpSet O>
void Drafter<O>::StageRows(const InsertChunk& chunk) {
  StepHead& head = staged_.head();
  Bf16* out = staged_.rows();
  head.insert_out_rows.fill(-1);
  for (size_t i = 0; i < chunk.rows.size(); ++i) {
    const RowSource& row = chunk.rows[i];
    head.insert_positions[i] = row.position;
    head.insert_out_rows[i] =
        row.slot * config_.ring_rows() + static_cast<int32_t>(row.position % config_.ring_rows());
    out = std::copy_n(row.values, chunk.row_values, out);
  }
}

template <OpSet O>
void Drafter<O>::Send(RankType& rank, int64_t value_count) {
  const size_t bytes = sizeof(StepHead) + static_cast<size_t>(value_count) * sizeof(Bf16);
  ops_->Upload(rank.index, std::span<const std::byte>(staged_.data(), bytes), rank.step.data());
}

template <OpSet O>
void Drafter<O>::SendAndInsert(std::span<const InsertRows> inserts, const StepRequest* block) {
  const std::vector<InsertChunk> chunks = ChunksOf(inserts);
  for (const InsertRows& insert : inserts) {
    windows_[insert.slot].Insert(insert.position, insert.row_count, config_.ring_rows());
  }
  staged_.head() = StepHead();
  if (block != nullptr) StageBlock(staged_.head(), *block);
  if (chunks.empty()) {
    ops_->Mark(StepMark::kBegin);
    if (block != nullptr) ForEachRank([&](RankType& rank) { Send(rank, 0); });
  }
  for (const InsertChunk& chunk : chunks) {
    const bool is_first = &chunk == &chunks.front();
    // Only prompts need a second chunk; the first must have left the host's memory.
    if (!is_first) ForEachRank([&](RankType& rank) { ops_->Wait(rank.index); });
    StageRows(chunk);
    if (is_first) ops_->Mark(StepMark::kBegin);
    ForEachRank([&](RankType& rank) { Send(rank, chunk.value_count()); });
    const int rows = static_cast<int>(chunk.rows.size());
    // An observer is shown the rows alone, without padding.
    Run(GraphKey::Insert(observer_ == nullptr ? ops_->PaddedRows(rows) : rows,
                         chunk.kind == RowKind::kTaps));
  }
}

// An observer copies to the host in between, which recorded operations cannot.
template <OpSet O>
void Drafter<O>::Run(const GraphKey& key) {
  if (observer_ != nullptr) return Enqueue(key);
  ops_->Run(key, [&] { Enqueue(key); });
}

template <OpSet O>
void Drafter<O>::Enqueue(const GraphKey& key) {
  if (key.kind == GraphKey::Kind::kInsert) return EnqueueInsert(key);
  EnqueueDraft(key);
}

template <OpSet O>
void Drafter<O>::EnqueueInsert(const GraphKey& key) {
  const int count = key.rows;
  const int dim = config_.dim;
  const int64_t row_values = RowValues(key.from_taps ? RowKind::kTaps : RowKind::kMainX);
  ForEachRank([&](RankType& rank) {
    const int r = rank.index;
    const StepHead& head = rank.step.head();
    float* main_x = rank.main_x.data();
    if (key.from_taps) {
      float* wide = rank.insert_wide.data();
      ops_->Widen(r, {rank.step.rows(), count * row_values, wide});
      const LinearOpArgs main_proj = {&rank.weights.main_proj, wide, row_values, count, main_x};
      ops_->Linear(r, {&main_proj, 1});
      ops_->RmsNorm(r, {main_x, rank.weights.main_norm, config_.norm_eps, count, dim, main_x});
    } else {
      ops_->Widen(r, {rank.step.rows(), count * row_values, main_x});
    }
    Observe(rank, "main_x", -1, main_x, {count, dim});
    const int64_t kv_values = int64_t{count} * config_.head_dim;
    std::vector<LinearOpArgs> products;
    for (int s = 0; s < config_.stages; ++s) {
      products.push_back(
          {&rank.weights.stages[s].wkv, main_x, dim, count, rank.insert_kv.data() + s * kv_values});
    }
    ops_->Linear(r, products);
    for (int s = 0; s < config_.stages; ++s) {
      float* kv = products[s].y;
      ops_->RmsNorm(
          r, {kv, rank.weights.stages[s].kv_norm, config_.norm_eps, count, config_.head_dim, kv});
      ops_->KvFinish(r, {kv, head.insert_positions.data(), count, rank.rings[s].data(),
                         head.insert_out_rows.data()});
    }
  });
}

}  // namespace tp2
