// Starts the job's first process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cmd/run-owned/cgroup.h"

namespace tp2::owned {

struct SpawnOptions {
  std::vector<std::string> command;  // looked up in PATH
  std::string visible_devices;       // whole UUIDs in rank order
  const Cgroup* group = nullptr;
  int out_fd = -1;
  int err_fd = -1;
};

struct Spawned {
  pid_t pid = -1;
  int error = 0;             // errno of a command that cannot run
  bool is_in_group = false;  // of the control group
};

// The process leads a group of its own, reads nothing, inherits no descriptor but its two outputs,
// and is killed when the caller dies. Only while the caller has one thread.
Spawned Spawn(const SpawnOptions& options);

}  // namespace tp2::owned
