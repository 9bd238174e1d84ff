// The grid of (requests, n_out) and the time of one cell: full windows, the same rows and anchors
// for every engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/drafter/step_engine.h"

namespace tp2::bench {

struct Cell {
  int requests = 1;
  int n_out = kBlockRows;
  int insert_rows = 0;  // new context rows per request and STEP; 0 times the draft alone
};

// Host wall of whole calls, from call to results on the host, in nanoseconds.
struct CellTimes {
  Cell cell;
  std::vector<int64_t> insert_ns;  // empty without insert_rows
  std::vector<int64_t> draft_ns;
};

// Fills slots 0 .. 3 with full windows. Errors: the engine's.
absl::Status FillWindows(StepEngine& engine);

// `warmup` STEPs that are not counted, then `replays`. FillWindows must have run.
absl::StatusOr<CellTimes> RunCell(StepEngine& engine, const Cell& cell, int warmup, int replays);

// Nearest-rank percentile, 0 < percent <= 100; the values may be in any order and not empty.
int64_t Percentile(std::vector<int64_t> values, double percent);
// Median absolute deviation from the median.
int64_t MedianDeviation(const std::vector<int64_t>& values);

}  // namespace tp2::bench
