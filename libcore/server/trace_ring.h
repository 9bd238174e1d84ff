// The timelines of the last STEPs, exported as Chrome trace events (which Perfetto reads too).
// Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace tp2::server {

// Times are of one steady clock; `insert_ns` and `draft_ns` are what the engine measured.
struct StepTrace {
  uint64_t session = 0;
  uint64_t round = 0;
  uint64_t trace_id = 0;
  int entries = 0;
  int rows = 0;
  int n_out = 0;
  bool is_good = false;
  int64_t arrival_ns = 0;  // the request was complete
  int64_t begin_ns = 0;    // the engine was called
  int64_t insert_ns = 0;
  int64_t draft_ns = 0;
  int64_t end_ns = 0;  // the engine returned
};

class TraceRing {
 public:
  static constexpr size_t kSteps = 4096;

  void Add(const StepTrace& step);

  // Complete events on one row per stage (queue, engine, insert, draft), so that none overlap.
  std::string ToChromeJson() const;

 private:
  mutable std::mutex mutex_;
  std::vector<StepTrace> steps_;  // guarded by mutex_; ring once it has kSteps
  size_t added_ = 0;              // guarded by mutex_
};

}  // namespace tp2::server
