#include "libcore/bench/cells.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "libcore/base/rng.h"
#include "libcore/base/status_macros.h"

namespace tp2::bench {
namespace {

std::vector<Bf16> Rows(Rng& rng, int64_t count) {
  std::vector<Bf16> values;
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values.push_back(ToBf16(rng.Signed()));
  return values;
}

}  // namespace

absl::Status FillWindows(StepEngine& engine) {
  const DrafterConfig& config = engine.info().config;
  Rng rng(1);
  for (int slot = 0; slot < kMaxRequests; ++slot) {
    TP2_RETURN_IF_ERROR(engine.ResetSlot(slot, 0));
    for (int64_t position = 0; position < config.window;) {
      const int rows =
          static_cast<int>(std::min<int64_t>(kMaxRowsPerMessage, config.window - position));
      const std::vector<Bf16> values = Rows(rng, rows * int64_t{config.tap_values()});
      TP2_RETURN_IF_ERROR(engine.Insert({slot, position, RowKind::kTaps, rows, values}));
      position += rows;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CellTimes> RunCell(StepEngine& engine, const Cell& cell, int warmup, int replays) {
  const DrafterConfig& config = engine.info().config;
  Rng rng(2);
  const std::vector<Bf16> values =
      Rows(rng, int64_t{cell.requests} * cell.insert_rows * config.tap_values());
  CellTimes times;
  times.cell = cell;
  for (int replay = -warmup; replay < replays; ++replay) {
    std::vector<StepEntry> entries;
    for (int slot = 0; slot < cell.requests; ++slot) {
      const int64_t row_values = int64_t{cell.insert_rows} * config.tap_values();
      entries.push_back(
          {.rows = {.slot = slot,
                    .position = engine.window(slot).length(),
                    .kind = RowKind::kTaps,
                    .row_count = cell.insert_rows,
                    .values = std::span(values).subspan(slot * row_values, row_values)},
           .anchor = static_cast<int32_t>(rng.Below(config.vocab))});
    }
    TP2_ASSIGN_OR_RETURN(const StepOutputs outputs,
                         engine.Step({.entries = entries, .n_out = cell.n_out}));
    if (replay < 0) continue;
    times.draft_ns.push_back(outputs.draft_ns);
    if (cell.insert_rows > 0) times.insert_ns.push_back(outputs.insert_ns);
  }
  return times;
}

int64_t Percentile(std::vector<int64_t> values, double percent) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(percent / 100.0 * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::max(1.0, rank)) - 1];
}

int64_t MedianDeviation(const std::vector<int64_t>& values) {
  const int64_t median = Percentile(values, 50);
  std::vector<int64_t> deviations;
  for (const int64_t value : values) deviations.push_back(std::abs(value - median));
  return Percentile(deviations, 50);
}

}  // namespace tp2::bench
