// All processes of a job: those of its control group, and the descendants of the process that
// adopts its orphans. Neither alone is enough: a job may leave its group, and without a group only
// kinship is left.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "cmd/run-owned/cgroup.h"
#include "cmd/run-owned/processes.h"

namespace tp2::owned {

// Thread-compatible. Belongs to the process `root`, which must be a child subreaper.
class JobTree {
 public:
  // `main` is the job's first process and the leader of its group; `group` may be null and must
  // outlive this. Kin of `root` that are not the job's are named in `strangers`.
  JobTree(pid_t root, pid_t main, const Cgroup* group, std::vector<pid_t> strangers);

  // Living processes of the job; dead ones that `root` adopted are reaped on the way, `main` is
  // not, so that its number and its group's stay its own.
  std::vector<Process> Alive() const;
  // To the job's group: needs no look at the process table first.
  void SignalGroup(int number) const;
  // To everyone outside of the group.
  void SignalOthers(int number, const std::vector<Process>& alive) const;
  // As hard as it gets: group, control group, everyone left. True when the control group took part.
  bool Kill(const std::vector<Process>& alive) const;
  // Whether nothing is left, without the gap that reading a changing process table has. Reaps
  // `main`; after a true only the destructor may follow, after a false only Alive and Kill.
  bool ConfirmEmpty();
  // The wait status of `main` once ConfirmEmpty has reaped it.
  std::optional<int> main_status() const { return main_status_; }

 private:
  pid_t root_;
  pid_t main_;
  const Cgroup* group_;
  std::vector<pid_t> strangers_;
  bool is_main_reaped_ = false;
  std::optional<int> main_status_;
};

}  // namespace tp2::owned
