#include "cmd/run-owned/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "libcore/base/unique_fd.h"

namespace tp2::owned {
namespace {

// What the new process tells before it is the command; exec closes the pipe.
struct Report {
  int error = 0;
  bool is_in_group = false;
};

void ResetSignals() {
  for (int number = 1; number < NSIG; ++number) {
    if (number != SIGKILL && number != SIGSTOP) ::signal(number, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void Become(const SpawnOptions& options, int report_fd, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the request for the signal.
  if (::getppid() != parent) ::_exit(126);
  Report report{.is_in_group = options.group != nullptr && options.group->Enter()};
  ResetSignals();
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(null.get(), STDIN_FILENO);
  ::dup2(options.out_fd, STDOUT_FILENO);
  ::dup2(options.err_fd, STDERR_FILENO);
  // Also what our own caller left open: a job that stays behind must hold nothing of anybody.
  ::syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  ::setenv("CUDA_VISIBLE_DEVICES", options.visible_devices.c_str(), 1);
  // The order of the UUIDs is the order of the ranks.
  ::unsetenv("CUDA_DEVICE_ORDER");
  std::vector<char*> arguments;
  for (const std::string& word : options.command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  const bool is_told = ::write(report_fd, &report, sizeof report) == sizeof report;
  if (is_told) ::execvp(arguments[0], arguments.data());
  report.error = errno;
  if (::write(report_fd, &report, sizeof report) != sizeof report) ::_exit(126);
  ::_exit(report.error == ENOENT ? 127 : 126);
}

}  // namespace

Spawned Spawn(const SpawnOptions& options) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {.error = errno};
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  const pid_t parent = ::getpid();
  Spawned spawned{.pid = ::fork()};
  if (spawned.pid < 0) return {.error = errno};
  if (spawned.pid == 0) Become(options, out.get(), parent);
  ::setpgid(spawned.pid, spawned.pid);  // whoever of the two comes first
  out.Reset();
  Report report;
  while (true) {
    const ssize_t got = ::read(in.get(), &report, sizeof report);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    spawned.error = report.error;
    spawned.is_in_group = report.is_in_group;
  }
  return spawned;
}

}  // namespace tp2::owned
