#include "cmd/run-owned/ladder.h"

#include <signal.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tp2::owned {
namespace {

constexpr size_t kNamedProcesses = 8;

std::string Names(const std::vector<Process>& processes) {
  std::string text;
  for (size_t i = 0; i < std::min(processes.size(), kNamedProcesses); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", processes[i].pid, " (", processes[i].name, ")");
  }
  if (processes.size() > kNamedProcesses) {
    absl::StrAppend(&text, " and ", processes.size() - kNamedProcesses, " more");
  }
  return text;
}

}  // namespace

void Ladder::Begin(int64_t now_ns, int64_t kill_by_ns) {
  if (phase_ != Phase::kIdle) return;
  phase_ = Phase::kTerm;
  kill_ns_ = std::min(now_ns + times_.grace_ns, std::max(now_ns, kill_by_ns));
  job_->SignalGroup(SIGTERM);
  // A stopped process does not see TERM before it continues.
  job_->SignalGroup(SIGCONT);
  const std::vector<Process> alive = job_->Alive();
  if (alive.empty()) return;
  job_->SignalOthers(SIGTERM, alive);
  job_->SignalOthers(SIGCONT, alive);
  log_(absl::StrCat("after TERM and CONT alive: ", Names(alive)));
}

void Ladder::Hurry(int64_t now_ns) {
  if (phase_ == Phase::kIdle || phase_ == Phase::kTerm) {
    phase_ = Phase::kTerm;
    kill_ns_ = now_ns;
  }
  Tick(now_ns);
}

void Ladder::KillLiving(int64_t now_ns) {
  const std::vector<Process> alive = job_->Alive();
  if (alive.empty()) return;
  const bool has_group = job_->Kill(alive);
  if (!is_kill_logged_) {
    log_(absl::StrCat("KILL", has_group ? " and cgroup.kill" : "", " to ", Names(alive)));
    is_kill_logged_ = true;
  }
  if (phase_ == Phase::kKill && now_ns - kill_ns_ >= times_.give_up_ns) {
    phase_ = Phase::kStuck;
    for (const Process& process : alive) {
      log_(absl::StrCat("cannot be killed: pid ", process.pid, " (", process.name, "), state ",
                        std::string(1, process.state), ", waits in '", WaitChannel(process.pid),
                        "'"));
    }
  }
}

void Ladder::Tick(int64_t now_ns) {
  if (phase_ == Phase::kIdle || phase_ == Phase::kDone) return;
  if (job_->ConfirmEmpty()) {
    phase_ = Phase::kDone;
    return;
  }
  if (phase_ == Phase::kTerm && now_ns >= kill_ns_) phase_ = Phase::kKill;
  if (phase_ == Phase::kKill || phase_ == Phase::kStuck) KillLiving(now_ns);
}

}  // namespace tp2::owned
