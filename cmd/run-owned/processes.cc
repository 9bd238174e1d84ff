#include "cmd/run-owned/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace tp2::owned {
namespace {

std::string ReadSmall(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char buffer[1024];
  const ssize_t got = fd.is_open() ? ::read(fd.get(), buffer, sizeof buffer) : -1;
  return got <= 0 ? std::string() : std::string(buffer, static_cast<size_t>(got));
}

}  // namespace

std::vector<pid_t> AllPids() {
  std::vector<pid_t> pids;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return pids;
  while (const struct dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') {
      pids.push_back(static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10)));
    }
  }
  ::closedir(folder);
  return pids;
}

Process ReadProcess(pid_t pid) {
  const std::string text = ReadSmall(absl::StrCat("/proc/", pid, "/stat"));
  const size_t open = text.find('(');
  // The name may hold anything, also a parenthesis; nothing after it does.
  const size_t close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  Process process{.pid = pid, .name = text.substr(open + 1, close - open - 1)};
  std::istringstream fields(text.substr(close + 1));
  fields >> process.state >> process.parent >> process.group;
  std::string skipped;
  // Fields 6 to 21 lie between the process group and the start time.
  for (int field = 6; field <= 21; ++field) fields >> skipped;
  fields >> process.start_ticks;
  return fields ? process : Process{};
}

std::vector<Process> AllProcesses() {
  std::vector<Process> processes;
  for (const pid_t pid : AllPids()) {
    Process process = ReadProcess(pid);
    if (process.pid != 0) processes.push_back(std::move(process));
  }
  return processes;
}

std::string ProcessName(pid_t pid) {
  const Process process = ReadProcess(pid);
  return process.pid == 0 ? "gone" : process.name;
}

std::string WaitChannel(pid_t pid) { return ReadSmall(absl::StrCat("/proc/", pid, "/wchan")); }

std::vector<Process> Descendants(pid_t root) {
  std::multimap<pid_t, Process> by_parent;
  for (Process& process : AllProcesses()) by_parent.emplace(process.parent, std::move(process));
  std::vector<Process> found;
  std::set<pid_t> seen = {root};
  std::vector<pid_t> open = {root};
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    const auto [begin, end] = by_parent.equal_range(parent);
    for (auto child = begin; child != end; ++child) {
      // The table is read while it changes: a number may show up twice.
      if (!seen.insert(child->second.pid).second) continue;
      open.push_back(child->second.pid);
      found.push_back(child->second);
    }
  }
  return found;
}

// By number: glibc 2.36 declares its wrappers without C linkage.
UniqueFd OpenPidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

void SignalProcess(const Process& process, int number) {
  const UniqueFd pidfd = OpenPidfd(process.pid);
  if (!pidfd.is_open()) return;
  // From here on the descriptor means one process; check that it is the one that was seen.
  if (ReadProcess(process.pid).start_ticks != process.start_ticks) return;
  ::syscall(SYS_pidfd_send_signal, pidfd.get(), number, nullptr, 0);
}

}  // namespace tp2::owned
