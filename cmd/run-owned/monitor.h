// The loop of a run: watches permit, telemetry, signals and guard; decides when the job must end
// and remembers what happened.
#pragma once

#include <csignal>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cmd/run-owned/guard.h"
#include "cmd/run-owned/options.h"
#include "cmd/run-owned/outputs.h"
#include "cmd/run-owned/permit.h"
#include "cmd/run-owned/preflight.h"
#include "cmd/run-owned/verdict.h"
#include "libcore/base/clock.h"
#include "libcore/telemetry/stale_watch.h"
#include "libcore/telemetry/totals.h"

namespace tp2::owned {

struct Event {
  double at_s = 0;  // since the start of the run
  std::string text;
};

// What the summary is made of.
struct RunRecord {
  RunEnd end;
  std::string started_utc;
  double duration_s = 0;
  std::vector<Event> events;
  std::vector<std::string> warnings;
  std::vector<std::string> leftovers;
  telemetry::RunTotals totals;
  std::deque<telemetry::Sample> last_samples;
  std::string cgroup_path;
  bool is_permit_held = true;
  bool is_telemetry_lost = false;
};

// Thread-compatible.
class Monitor {
 public:
  // All must outlive it. `signal_fd` delivers TERM, INT and HUP; `shows_progress` on a terminal.
  Monitor(const Options& options, Cards* cards, PermitWatch* permit, Guard* guard, int signal_fd,
          Outputs* outputs, bool shows_progress);

  // Starts the job and returns when nothing of it is left, or when that cannot be reached. The
  // guard keeps the locks until Goodbye and until then.
  void Run();
  void Event(const std::string& text);
  void Warn(const std::string& text);
  // A card's processes before the start, from the first sample. Empty when there are none.
  std::string ForeignProcesses();
  // Waits for the first sample, so that counters have a beginning. False when none came.
  bool TakeFirstSample();
  void Goodbye();

  const RunRecord& record() const { return record_; }
  RunRecord& record() { return record_; }

 private:
  void WaitForSomething(int64_t now_ns);
  void TakeGuardMessages();
  void TakeSignals();
  void TakeSamples();
  void AddSample(const telemetry::Sample& sample);
  void TakeFinalSample();
  void LoseTelemetry(const std::string& why);
  void CheckPermitNow(int64_t now_ns);
  void CheckClocks(int64_t now_ns);
  void CheckGuard();
  void RequestStop(Cause cause, const std::string& why);
  void TakeOver(const std::string& why);
  void SetEnd(const GuardMessage& message);
  void ShowProgress(int64_t now_ns);

  const Options& options_;
  Cards* cards_;
  PermitWatch* permit_;
  Guard* guard_;
  int signal_fd_;
  Outputs* outputs_;
  bool shows_progress_;

  RunRecord record_;
  int64_t begin_ns_;
  int64_t start_sent_ns_ = 0;
  std::optional<int64_t> job_started_ns_;
  pid_t main_ = -1;
  bool is_over_ = false;
  bool is_guard_gone_ = false;
  bool has_permit_event_ = false;
  std::optional<Cause> stop_cause_;
  SteadyClock steady_;
  std::optional<int64_t> unanswered_since_ns_;  // of steady_
  int64_t pinged_ns_ = 0;                       // of steady_
  telemetry::StaleWatch stale_;
  int64_t wall_offset_ns_;
  int64_t progress_ns_ = 0;
  std::string last_power_;
};

}  // namespace tp2::owned
