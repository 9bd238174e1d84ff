#include "cmd/run-owned/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cmd/run-owned/ladder.h"
#include "cmd/run-owned/spawn.h"
#include "libcore/base/error.h"
#include "libcore/telemetry/sample.h"

namespace tp2::owned {
namespace {

using telemetry::BootNowNs;

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int kRunningTickMs = 200;
constexpr int kStoppingTickMs = 10;
// A shell's last helper often ends a moment after the shell.
constexpr int64_t kSettleNs = 200 * kNsPerMs;
constexpr size_t kMaxLeftovers = 32;

volatile sig_atomic_t g_is_told_to_stop = 0;
void OnTerm(int) { g_is_told_to_stop = 1; }

class GuardLoop {
 public:
  GuardLoop(const GuardOptions& options, int socket) : options_(options), socket_(socket) {}

  void Run();

 private:
  bool WaitForStart();
  bool StartJob();
  void Wait();
  void TakeMessages();
  void Decide(int64_t now_ns);
  void Stop(Cause cause, int64_t now_ns);
  bool HasMainEnded();
  void ReportLeftovers(const std::vector<Process>& alive);
  void Note(const std::string& text);
  // Drops what the other side does not read: it must not hold us up.
  bool Tell(GuardMessage::Kind kind, int32_t a = 0, int32_t b = 0, int32_t c = 0,
            const std::string& text = "");

  const GuardOptions& options_;
  int socket_;
  std::optional<Cgroup> cgroup_;
  std::unique_ptr<JobTree> job_;
  std::unique_ptr<Ladder> ladder_;
  pid_t main_ = -1;
  UniqueFd main_pidfd_;
  int64_t started_ns_ = 0;
  std::optional<int64_t> main_ended_ns_;
  int wait_status_ = 0;
  Cause cause_ = Cause::kChild;
  bool has_leftovers_ = false;
  bool is_stuck_told_ = false;
  bool is_monitor_gone_ = false;
  bool is_goodbye_ = false;
};

bool GuardLoop::Tell(GuardMessage::Kind kind, int32_t a, int32_t b, int32_t c,
                     const std::string& text) {
  return !is_monitor_gone_ && SendMessage(socket_, kind, a, b, c, text);
}

void GuardLoop::Note(const std::string& text) {
  if (Tell(GuardMessage::kNote, 0, 0, 0, text) || options_.log_fd < 0) return;
  const std::string line = absl::StrCat("# ", telemetry::UtcNow(), " guard: ", text, "\n");
  if (::write(options_.log_fd, line.data(), line.size()) < 0) return;  // a full disk stops nothing
}

bool GuardLoop::WaitForStart() {
  while (true) {
    struct pollfd wait = {.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, -1) < 0 && errno != EINTR) return false;
    const std::optional<GuardMessage> message = ReceiveMessage(socket_, is_monitor_gone_);
    if (is_monitor_gone_) return false;
    if (message.has_value()) return message->kind == GuardMessage::kStart;
  }
}

bool GuardLoop::StartJob() {
  // Before the job is there: whatever the clock does meanwhile, it counts.
  started_ns_ = BootNowNs();
  if (options_.wants_cgroup) {
    absl::StatusOr<Cgroup> cgroup = Cgroup::Create();
    if (cgroup.ok()) {
      cgroup_ = *std::move(cgroup);
    } else {
      Note(absl::StrCat("warning: ", std::string(cgroup.status().message()),
                        ": process group and adoption only"));
    }
  }
  const Spawned spawned = Spawn({.command = options_.command,
                                 .visible_devices = options_.visible_devices,
                                 .group = cgroup_.has_value() ? &*cgroup_ : nullptr,
                                 .out_fd = options_.out_fd,
                                 .err_fd = options_.err_fd});
  ::close(options_.out_fd);
  ::close(options_.err_fd);
  if (cgroup_.has_value() && !spawned.is_in_group) {
    cgroup_->Remove();
    cgroup_.reset();
    if (spawned.pid > 0) Note("warning: the control group takes no process: it is not used");
  }
  if (spawned.error != 0) {
    if (spawned.pid > 0) ::waitpid(spawned.pid, nullptr, 0);
    if (cgroup_.has_value()) cgroup_->Remove();
    Tell(GuardMessage::kCannotRun, spawned.error);
    return false;
  }
  main_ = spawned.pid;
  main_pidfd_ = OpenPidfd(main_);
  job_ = std::make_unique<JobTree>(::getpid(), main_, cgroup_.has_value() ? &*cgroup_ : nullptr,
                                   std::vector<pid_t>());
  ladder_ = std::make_unique<Ladder>(
      job_.get(), LadderTimes{options_.grace_ms * kNsPerMs, options_.give_up_ms * kNsPerMs},
      [this](const std::string& text) { Note(text); });
  Tell(GuardMessage::kStarted, main_, 0, 0, cgroup_.has_value() ? cgroup_->path() : "");
  return true;
}

void GuardLoop::Wait() {
  int64_t wait_ms = kRunningTickMs;
  if (ladder_->has_begun() && !ladder_->is_stuck() && !ladder_->is_done()) {
    wait_ms = kStoppingTickMs;
  } else if (main_ended_ns_.has_value() && !ladder_->is_done()) {
    wait_ms = kStoppingTickMs;
  } else if (!ladder_->has_begun()) {
    const int64_t term_ns =
        started_ns_ + (options_.cap_ms - options_.kill_margin_ms - options_.grace_ms) * kNsPerMs;
    wait_ms = std::clamp<int64_t>((term_ns - BootNowNs()) / kNsPerMs + 1, 0, wait_ms);
  }
  struct pollfd waits[2] = {
      {.fd = is_monitor_gone_ ? -1 : socket_, .events = POLLIN, .revents = 0},
      {.fd = main_ended_ns_.has_value() ? -1 : main_pidfd_.get(), .events = POLLIN, .revents = 0}};
  ::poll(waits, 2, static_cast<int>(wait_ms));
}

void GuardLoop::TakeMessages() {
  while (const std::optional<GuardMessage> message = ReceiveMessage(socket_, is_monitor_gone_)) {
    const int64_t now_ns = BootNowNs();
    switch (message->kind) {
      case GuardMessage::kStop:
        Stop(static_cast<Cause>(message->a), now_ns);
        break;
      case GuardMessage::kHurry:
        ladder_->Hurry(now_ns);
        break;
      case GuardMessage::kPing:
        Tell(GuardMessage::kAck);
        break;
      case GuardMessage::kGoodbye:
        is_goodbye_ = true;
        break;
      default:
        break;
    }
  }
}

bool GuardLoop::HasMainEnded() {
  if (main_ended_ns_.has_value()) return true;
  siginfo_t info = {};
  // Looked at, not reaped: its number stays taken while its group may get signals.
  if (::waitid(P_PID, static_cast<id_t>(main_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return false;
  }
  main_ended_ns_ = BootNowNs();
  wait_status_ = info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0) : info.si_status;
  return true;
}

void GuardLoop::Stop(Cause cause, int64_t now_ns) {
  // A child that has ended by itself keeps its own code.
  if (ladder_->has_begun() || HasMainEnded()) return;
  cause_ = cause;
  ladder_->Begin(now_ns, started_ns_ + (options_.cap_ms - options_.kill_margin_ms) * kNsPerMs);
  // The members may be gone before anyone could list them.
  Note(absl::StrCat("TERM and CONT to process group ", main_));
}

void GuardLoop::ReportLeftovers(const std::vector<Process>& alive) {
  has_leftovers_ = true;
  for (size_t i = 0; i < std::min(alive.size(), kMaxLeftovers); ++i) {
    Tell(GuardMessage::kLeftover, alive[i].pid, 0, 0, alive[i].name);
  }
}

void GuardLoop::Decide(int64_t now_ns) {
  const int64_t cap_ns = started_ns_ + options_.cap_ms * kNsPerMs;
  const int64_t kill_by_ns = cap_ns - options_.kill_margin_ms * kNsPerMs;
  if (HasMainEnded() && !ladder_->has_begun()) {
    const std::vector<Process> alive = job_->Alive();
    if (alive.empty() || now_ns - *main_ended_ns_ >= kSettleNs) {
      if (!alive.empty()) ReportLeftovers(alive);
      ladder_->Begin(now_ns, alive.empty() ? now_ns : kill_by_ns);
    }
  }
  if (is_monitor_gone_ && !is_goodbye_) {
    if (!ladder_->is_done() && cause_ != Cause::kMonitorLost) {
      cause_ = Cause::kMonitorLost;
      Note("run-owned is gone: the job is killed");
    }
    ladder_->Hurry(now_ns);
  }
  if (g_is_told_to_stop != 0) Stop(Cause::kSignal, now_ns);
  if (now_ns >= kill_by_ns - options_.grace_ms * kNsPerMs) Stop(Cause::kCap, now_ns);
  if (!ladder_->has_begun()) job_->Alive();  // reaps adopted orphans
  ladder_->Tick(now_ns);
  if (ladder_->is_stuck() && !is_stuck_told_) {
    is_stuck_told_ = Tell(GuardMessage::kStuck, static_cast<int32_t>(cause_), wait_status_);
  }
}

void GuardLoop::Run() {
  if (!WaitForStart() || !StartJob()) return;
  while (!ladder_->is_done()) {
    Wait();
    TakeMessages();
    HasMainEnded();
    Decide(BootNowNs());
  }
  if (cgroup_.has_value()) cgroup_->Remove();
  if (!main_ended_ns_.has_value()) wait_status_ = job_->main_status().value_or(0);
  bool is_told = false;
  while (!is_monitor_gone_ && !is_goodbye_) {
    if (!is_told) {
      is_told = Tell(GuardMessage::kEmpty, static_cast<int32_t>(cause_), wait_status_,
                     has_leftovers_ ? 1 : 0);
    }
    Wait();
    TakeMessages();
  }
}

[[noreturn]] void RunGuard(const GuardOptions& options, int socket) {
  // Its own session: what ends run-owned's group or terminal does not end the guard.
  ::setsid();
  ::prctl(PR_SET_NAME, "run-owned-guard");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  struct sigaction action = {};
  action.sa_handler = OnTerm;
  ::sigaction(SIGTERM, &action, nullptr);
  for (const int number : {SIGINT, SIGHUP, SIGPIPE, SIGTTOU}) ::signal(number, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // Whoever reads the tool's output must see its end when the tool ends.
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null.get(), fd);
  GuardLoop(options, socket).Run();
  ::_exit(0);
}

}  // namespace

bool SendMessage(int fd, GuardMessage::Kind kind, int32_t a, int32_t b, int32_t c,
                 const std::string& text) {
  GuardMessage message;
  message.kind = kind;
  message.a = a;
  message.b = b;
  message.c = c;
  std::copy_n(text.begin(), std::min(text.size(), sizeof message.text - 1), message.text);
  return ::send(fd, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof message;
}

std::optional<GuardMessage> ReceiveMessage(int fd, bool& is_gone) {
  GuardMessage message;
  ssize_t got = 0;
  do {
    got = ::recv(fd, &message, sizeof message, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof message) {
    message.text[sizeof message.text - 1] = '\0';
    return message;
  }
  if (got == 0 || (got < 0 && errno != EAGAIN)) is_gone = true;
  return std::nullopt;
}

absl::StatusOr<Guard> StartGuard(const GuardOptions& options) {
  const auto failure = [] {
    return MakeError(
        absl::StatusCode::kUnavailable,
        {.what = "guard", .expected = "a second process", .got = ErrnoText(), .where = ""});
  };
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return failure();
  Guard guard{.socket = UniqueFd(ends[0])};
  const UniqueFd theirs(ends[1]);
  guard.pid = ::fork();
  if (guard.pid < 0) return failure();
  if (guard.pid == 0) {
    guard.socket.Reset();
    RunGuard(options, theirs.get());
  }
  return guard;
}

}  // namespace tp2::owned
