// A control group of its own for the job, where the system lets us make one: the only means that
// ends double-forked, stopped and TERM-ignoring processes in one write.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tp2::owned {

// Thread-compatible.
class Cgroup {
 public:
  // A new group below the one this process is in. Errors: kUnavailable (no version 2 hierarchy, no
  // permission, no cgroup.kill).
  static absl::StatusOr<Cgroup> Create();
  // An existing one that another process of ours made.
  static Cgroup At(std::string path) { return Cgroup(std::move(path)); }

  const std::string& path() const { return path_; }
  // Moves the calling process in. False when that fails.
  bool Enter() const;
  // Of the group itself; groups that the job made below it are not listed.
  std::vector<pid_t> Pids() const;
  // Whether anything lives in it or below it.
  bool IsPopulated() const;
  bool Kill() const;
  // With the groups below it. False when one of them is not empty yet.
  bool Remove() const;

 private:
  explicit Cgroup(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

}  // namespace tp2::owned
