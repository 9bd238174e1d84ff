#include "cmd/run-owned/job_tree.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tp2::owned {
namespace {

// Without a control group a job that forks faster than we kill is stopped first: a stopped process
// does not fork. More rounds than this mean that it is stopped as far as it will be.
constexpr int kStopRounds = 16;

bool Contains(const std::vector<pid_t>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

}  // namespace

JobTree::JobTree(pid_t root, pid_t main, const Cgroup* group, std::vector<pid_t> strangers)
    : root_(root), main_(main), group_(group), strangers_(std::move(strangers)) {}

std::vector<Process> JobTree::Alive() const {
  std::vector<Process> alive;
  std::vector<pid_t> seen;
  for (Process& process : Descendants(root_)) {
    if (Contains(strangers_, process.pid)) continue;
    if (process.is_dead()) {
      if (process.parent == root_ && process.pid != main_) ::waitpid(process.pid, nullptr, WNOHANG);
      continue;
    }
    seen.push_back(process.pid);
    alive.push_back(std::move(process));
  }
  if (group_ == nullptr) return alive;
  for (const pid_t pid : group_->Pids()) {
    if (Contains(seen, pid)) continue;
    Process process = ReadProcess(pid);
    if (process.pid != 0 && !process.is_dead()) alive.push_back(std::move(process));
  }
  return alive;
}

void JobTree::SignalGroup(int number) const {
  if (!is_main_reaped_) ::kill(-main_, number);
}

void JobTree::SignalOthers(int number, const std::vector<Process>& alive) const {
  for (const Process& process : alive) {
    if (process.group != main_ || is_main_reaped_) SignalProcess(process, number);
  }
}

bool JobTree::Kill(const std::vector<Process>& alive) const {
  SignalGroup(SIGKILL);
  const bool took_part = group_ != nullptr && group_->Kill();
  std::vector<Process> targets = alive;
  for (int round = 0; round < kStopRounds && !took_part && !targets.empty(); ++round) {
    for (const Process& process : targets) SignalProcess(process, SIGSTOP);
    std::vector<Process> now = Alive();
    const bool all_stopped = std::all_of(now.begin(), now.end(), [](const Process& process) {
      return process.state == 'T' || process.state == 't' || process.state == 'D';
    });
    targets = std::move(now);
    if (all_stopped) break;
  }
  for (const Process& process : targets) SignalProcess(process, SIGKILL);
  return took_part;
}

bool JobTree::ConfirmEmpty() {
  if (!Alive().empty() || (group_ != nullptr && group_->IsPopulated())) return false;
  if (!is_main_reaped_) {
    int status = 0;
    const pid_t reaped = ::waitpid(main_, &status, WNOHANG);
    if (reaped == 0) return false;
    if (reaped == main_) main_status_ = status;
    is_main_reaped_ = true;
  }
  if (!strangers_.empty()) return Alive().empty();
  // Orphans come to `root`, so a root without children has no descendants: this the kernel knows
  // for certain.
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  return errno == ECHILD && (group_ == nullptr || !group_->IsPopulated());
}

}  // namespace tp2::owned
