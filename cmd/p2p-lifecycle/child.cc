#include "cmd/p2p-lifecycle/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/unique_fd.h"

namespace tp2::lifecycle {
namespace {

// Start-up of a process with two contexts.
constexpr int kStartUpSeconds = 20;

CaseResult Failed(const std::string& reason) { return {Verdict::kFail, reason, Json::object()}; }

// Everything the child says, until it closes its output or time is up. False: time is up.
bool ReadAll(int fd, int64_t limit_ns, std::string& text) {
  const SteadyClock clock;
  const int64_t end_ns = clock.NowNs() + limit_ns;
  std::array<char, 4096> buffer;
  while (true) {
    const int64_t left_ms = (end_ns - clock.NowNs()) / 1'000'000;
    if (left_ms <= 0) return false;
    pollfd ready = {fd, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(left_ms)) <= 0) continue;
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count <= 0) return true;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
}

std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

CaseResult FromLine(const std::string& line, int status) {
  const absl::StatusOr<Json> parsed = ParseJson(line, "child");
  if (parsed.ok() && parsed->contains("verdict")) {
    CaseResult result;
    result.reason = parsed->value("reason", "");
    result.details = parsed->value("details", Json::object());
    for (const Verdict verdict : {Verdict::kPass, Verdict::kWaived}) {
      if (parsed->value("verdict", "") == VerdictName(verdict)) result.verdict = verdict;
    }
    return result;
  }
  if (WIFSIGNALED(status)) return Failed(absl::StrCat("ended by signal ", WTERMSIG(status)));
  return Failed(absl::StrCat("ended with code ", WEXITSTATUS(status), " and no result"));
}

}  // namespace

CaseResult RunInChild(const CaseInfo& info, const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Failed("pipe: " + ErrnoText());
  const UniqueFd from_child(ends[0]);
  UniqueFd to_parent(ends[1]);
  std::vector<char*> argv;
  std::vector<std::string> owned = arguments;
  owned.insert(owned.begin(), "p2p-lifecycle");
  for (std::string& argument : owned) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::string variable = info.environment;
  std::vector<char*> environment;
  if (!variable.empty()) environment.push_back(variable.data());
  const std::string name = variable.substr(0, variable.find('=') + 1);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (name.empty() || std::string(*entry).rfind(name, 0) != 0) environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_parent.get(), STDOUT_FILENO);
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return Failed(absl::StrCat("posix_spawn: error ", error));
  to_parent = UniqueFd();
  std::string text;
  const int limit_s = info.limit_s + kStartUpSeconds;
  const bool has_ended = ReadAll(from_child.get(), int64_t{limit_s} * 1'000'000'000, text);
  // A child that waits inside the driver can only be removed this way.
  if (!has_ended) kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  if (!has_ended) return Failed(absl::StrCat("still running after ", limit_s, " s: killed"));
  return FromLine(LastLine(text), status);
}

}  // namespace tp2::lifecycle
