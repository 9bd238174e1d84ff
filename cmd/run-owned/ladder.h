// How a job ends: TERM and CONT, grace, KILL until nothing is left, and patience with what cannot
// be killed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cmd/run-owned/job_tree.h"

namespace tp2::owned {

struct LadderTimes {
  int64_t grace_ns = 0;    // from TERM to KILL
  int64_t give_up_ns = 0;  // from KILL to the report that something cannot be killed
};

// Thread-compatible. Driven by Tick; every step is told to `log`.
class Ladder {
 public:
  Ladder(JobTree* job, LadderTimes times, std::function<void(const std::string&)> log)
      : job_(job), times_(times), log_(std::move(log)) {}

  // TERM now, KILL after the grace, but not later than `kill_by_ns`. Only the first call counts.
  void Begin(int64_t now_ns, int64_t kill_by_ns);
  // KILL now.
  void Hurry(int64_t now_ns);
  void Tick(int64_t now_ns);

  bool has_begun() const { return phase_ != Phase::kIdle; }
  bool is_done() const { return phase_ == Phase::kDone; }
  // Something has survived KILL for longer than the patience; Tick goes on.
  bool is_stuck() const { return phase_ == Phase::kStuck; }

 private:
  enum class Phase { kIdle, kTerm, kKill, kStuck, kDone };

  void KillLiving(int64_t now_ns);

  JobTree* job_;
  LadderTimes times_;
  std::function<void(const std::string&)> log_;
  Phase phase_ = Phase::kIdle;
  int64_t kill_ns_ = 0;
  bool is_kill_logged_ = false;
};

}  // namespace tp2::owned
