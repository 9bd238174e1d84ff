// The grid of (requests, n_out), the context insert by number of rows, and the time of one cell:
// full windows, the same rows and anchors for every engine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/drafter/step_engine.h"

namespace tp2::bench {

struct Cell {
  int requests = 1;
  int n_out = kBlockRows;
  int insert_rows = 0;         // new context rows per request and STEP; 0 times the draft alone
  bool wants_margins = false;  // also runner-ups and margins
  int first_slot = 0;          // of the requests', which follow each other
};

// Nanoseconds, one value per timed call. Host: wall from the call to results on the host, all
// uploads and downloads included. Device: between the events around the work on rank 0's stream;
// empty when the engine has no device clock.
struct CellTimes {
  std::vector<int64_t> host_ns;
  std::vector<int64_t> draft_device_ns;
  std::vector<int64_t> last_draft_device_ns;  // on the last rank's stream
  std::vector<int64_t> insert_device_ns;      // also empty without inserted rows
};

struct RunOptions {
  int warmup = 20;  // calls that are not counted
  int replays = 300;
  // Before each call, outside the timed part; may be empty.
  std::function<absl::Status()> before_each = {};
  // After each timed call with their number so far; may be empty.
  std::function<void(int)> after_each = {};
};

// What the slots hold before a cell is timed.
struct ContextOptions {
  int slot_count = kMaxRequests;  // that are not empty
  int64_t length = 0;             // position of a slot's next row; at least a full window
};

// Fills the first slots with full windows. Errors: the engine's.
absl::Status FillWindows(StepEngine& engine, const ContextOptions& context = {});

// STEPs of one cell, their anchors one after the other from AnchorTokens. FillWindows must have
// run. Errors: the engine's and before_each's.
absl::StatusOr<CellTimes> RunCell(StepEngine& engine, const Cell& cell, const RunOptions& options);

// Inserts of `rows` tap rows into slot 0, without drafting.
absl::StatusOr<CellTimes> RunInsert(StepEngine& engine, int rows, const RunOptions& options);

// Mean number of distinct routed experts that one STEP of the cell reads, per stage, over `steps`
// STEPs with the anchors of RunCell: half of what the experts cost. Needs an engine with an
// observer; empty without. Errors: the engine's.
absl::StatusOr<std::vector<double>> CountExperts(StepEngine& engine, const Cell& cell, int steps);

}  // namespace tp2::bench
