// The process table as /proc shows it, and signals that cannot hit a stranger.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/unique_fd.h"

namespace tp2::owned {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  char state = '?';
  uint64_t start_ticks = 0;  // with pid: the identity of a process
  std::string name = {};

  bool is_dead() const { return state == 'Z' || state == 'X'; }
};

std::vector<pid_t> AllPids();
// pid 0 in the result: no such process.
Process ReadProcess(pid_t pid);
std::vector<Process> AllProcesses();
// The name of a process, or "gone".
std::string ProcessName(pid_t pid);
// Where a process waits in the kernel; empty when the system does not tell.
std::string WaitChannel(pid_t pid);

// Children of `root`, their children and so on; dead ones included, root not.
std::vector<Process> Descendants(pid_t root);

// A descriptor that means this process and no later one with its number; readable once it has
// ended. Not open when there is none.
UniqueFd OpenPidfd(pid_t pid);

// Signals exactly this process: not one that has got its number since.
void SignalProcess(const Process& process, int number);

}  // namespace tp2::owned
