#include "cmd/run-owned/monitor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cmd/run-owned/ladder.h"
#include "libcore/base/error.h"

namespace tp2::owned {
namespace {

using telemetry::BootNowNs;
using telemetry::Sample;

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kNsPerSecond = 1'000'000'000;
constexpr int kTickMs = 200;
// A guard that does not answer within this while the job must end is replaced.
constexpr int64_t kGuardAnswerNs = 2 * kNsPerSecond;
constexpr int64_t kPingNs = kNsPerSecond / 2;
constexpr int kFinalSampleMs = 1500;
constexpr size_t kKeptSamples = 1024;
constexpr size_t kMaxEvents = 1000;
constexpr int64_t kClockJumpNs = kNsPerSecond;

// The wall clock minus the clock that never jumps.
int64_t WallOffsetNs() {
  struct timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * kNsPerSecond + now.tv_nsec - BootNowNs();
}

std::string SignalText(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? absl::StrCat("signal ", number) : absl::StrCat("SIG", name);
}

std::string MinutesText(int64_t ns) {
  return absl::StrFormat("%02d:%02d", ns / kNsPerSecond / 60, ns / kNsPerSecond % 60);
}

}  // namespace

Monitor::Monitor(const Options& options, Cards* cards, PermitWatch* permit, Guard* guard,
                 int signal_fd, Outputs* outputs, bool shows_progress)
    : options_(options),
      cards_(cards),
      permit_(permit),
      guard_(guard),
      signal_fd_(signal_fd),
      outputs_(outputs),
      shows_progress_(shows_progress),
      begin_ns_(BootNowNs()),
      stale_(options.stale_ms * kNsPerMs, begin_ns_),
      wall_offset_ns_(WallOffsetNs()) {
  record_.started_utc = telemetry::UtcNow();
}

void Monitor::Event(const std::string& text) {
  const double at_s = static_cast<double>(BootNowNs() - begin_ns_) / kNsPerSecond;
  outputs_->Post(Sink::kLog, absl::StrFormat("# %s %+.3fs %s\n", telemetry::UtcNow(), at_s, text));
  if (record_.events.size() < kMaxEvents) record_.events.push_back({at_s, text});
}

void Monitor::Warn(const std::string& text) {
  record_.warnings.push_back(text);
  Event(absl::StrCat("warning: ", text));
  outputs_->Post(Sink::kStderr, absl::StrCat("run-owned: warning: ", text, "\n"));
}

// ---- telemetry
// -----------------------------------------------------------------------------------

void Monitor::AddSample(const telemetry::Sample& sample) {
  const bool was_stale = stale_.Arrived(BootNowNs());
  if (was_stale) Event("telemetry is back");
  record_.totals.Add(sample);
  outputs_->Post(Sink::kTelemetry, ToJson(sample).dump() + "\n");
  record_.last_samples.push_back(sample);
  if (record_.last_samples.size() > kKeptSamples) record_.last_samples.pop_front();
  last_power_.clear();
  for (const telemetry::CardSample& card : sample.cards) {
    if (card.error.has_value() && !record_.is_telemetry_lost) {
      LoseTelemetry(absl::StrCat(card.uuid, ": ", *card.error));
    }
    absl::StrAppend(&last_power_, last_power_.empty() ? "" : "/",
                    card.power_mw.has_value() ? absl::StrCat(*card.power_mw / 1000) : "-");
  }
}

void Monitor::LoseTelemetry(const std::string& why) {
  record_.is_telemetry_lost = true;
  Warn(absl::StrCat("telemetry lost: ", why));
  if (options_.requires_telemetry) RequestStop(Cause::kTelemetry, "telemetry is required");
}

bool Monitor::TakeFirstSample() {
  if (!cards_->helper.has_value()) return true;
  const absl::Status begun = cards_->helper->Begin(cards_->cards, options_.sample_period_ms);
  absl::StatusOr<Sample> sample =
      begun.ok() ? cards_->helper->WaitSample(options_.stale_ms) : absl::StatusOr<Sample>(begun);
  if (sample.ok()) {
    AddSample(*sample);
    return !record_.is_telemetry_lost;
  }
  LoseTelemetry(std::string(sample.status().message()));
  return false;
}

std::string Monitor::ForeignProcesses() {
  std::string text;
  if (record_.last_samples.empty()) return text;
  for (const telemetry::CardSample& card : record_.last_samples.back().cards) {
    if (!card.processes.has_value()) absl::StrAppend(&text, card.uuid, ": unknown processes; ");
    for (const telemetry::ProcessSample& process :
         card.processes.value_or(std::vector<telemetry::ProcessSample>())) {
      absl::StrAppend(&text, card.uuid, ": pid ", process.pid, " (", ProcessName(process.pid),
                      "); ");
    }
  }
  return text;
}

void Monitor::TakeSamples() {
  if (!cards_->helper.has_value() || cards_->helper->fd() < 0) return;
  const absl::StatusOr<std::vector<Sample>> samples = cards_->helper->Drain();
  if (!samples.ok()) {
    if (!record_.is_telemetry_lost) LoseTelemetry(std::string(samples.status().message()));
    return;
  }
  for (const Sample& sample : *samples) AddSample(sample);
}

void Monitor::TakeFinalSample() {
  if (!cards_->helper.has_value() || cards_->helper->fd() < 0 || stale_.is_stale()) return;
  TakeSamples();
  const int64_t asked_ns = BootNowNs();
  if (cards_->helper->fd() < 0 || !cards_->helper->RequestSample().ok()) return;
  while (true) {
    const int64_t left_ms = kFinalSampleMs - (BootNowNs() - asked_ns) / kNsPerMs;
    const absl::StatusOr<Sample> sample =
        cards_->helper->WaitSample(static_cast<int>(std::max<int64_t>(0, left_ms)));
    if (!sample.ok()) {
      Event(absl::StrCat("no last sample: ", std::string(sample.status().message())));
      return;
    }
    AddSample(*sample);
    if (sample->boot_ns >= asked_ns) return;
  }
}

// ---- deciding
// ------------------------------------------------------------------------------------

void Monitor::RequestStop(Cause cause, const std::string& why) {
  if (stop_cause_.has_value()) return;
  stop_cause_ = cause;
  Event(absl::StrCat("stop: ", why));
  if (cause == Cause::kPermit) record_.is_permit_held = false;
  SendMessage(guard_->socket.get(), GuardMessage::kStop, static_cast<int32_t>(cause));
}

void Monitor::CheckPermitNow(int64_t now_ns) {
  if (permit_ == nullptr || stop_cause_.has_value()) return;
  if (!has_permit_event_ && now_ns < permit_->due_ns()) return;
  has_permit_event_ = false;
  const std::optional<std::string> withdrawn = permit_->Check(now_ns);
  if (withdrawn.has_value()) {
    RequestStop(Cause::kPermit, *withdrawn);
  } else if (permit_->TakeChanged()) {
    Event("the permit has changed and still names us");
  }
}

void Monitor::TakeSignals() {
  struct signalfd_siginfo info = {};
  while (::read(signal_fd_, &info, sizeof info) == sizeof info) {
    const int number = static_cast<int>(info.ssi_signo);
    if (stop_cause_.has_value()) {
      Event(absl::StrCat(SignalText(number), " while stopping: no grace"));
      SendMessage(guard_->socket.get(), GuardMessage::kHurry);
      continue;
    }
    record_.end.signal_number = number;
    RequestStop(Cause::kSignal, SignalText(number));
  }
}

void Monitor::SetEnd(const GuardMessage& message) {
  is_over_ = true;
  record_.end.wait_status = message.b;
  switch (static_cast<Cause>(message.a)) {
    case Cause::kChild:
      record_.end.verdict = message.c != 0 ? Verdict::kLeftovers : Verdict::kChild;
      return;
    case Cause::kCap:
      record_.end.verdict = Verdict::kCap;
      return;
    case Cause::kPermit:
      record_.end.verdict = Verdict::kPermitWithdrawn;
      return;
    case Cause::kSignal:
      if (record_.end.signal_number == 0) record_.end.signal_number = SIGTERM;
      record_.end.verdict = Verdict::kSignal;
      return;
    case Cause::kTelemetry:
      record_.end.verdict = Verdict::kTelemetryLost;
      return;
    default:
      record_.end.verdict = Verdict::kGuardLost;
  }
}

void Monitor::TakeGuardMessages() {
  while (const auto message = ReceiveMessage(guard_->socket.get(), is_guard_gone_)) {
    switch (message->kind) {
      case GuardMessage::kStarted:
        main_ = message->a;
        record_.cgroup_path = message->text;
        job_started_ns_ = start_sent_ns_;
        Event(absl::StrCat("job started: pid ", main_, ", control group ",
                           *message->text == '\0' ? "none" : message->text));
        break;
      case GuardMessage::kCannotRun:
        is_over_ = true;
        record_.end.verdict = Verdict::kCannotRun;
        record_.end.exec_errno = message->a;
        errno = message->a;
        Event(absl::StrCat("cannot run ", options_.command.front(), ": ", ErrnoText()));
        break;
      case GuardMessage::kLeftover:
        record_.leftovers.push_back(absl::StrCat(message->a, " (", message->text, ")"));
        Warn(absl::StrCat("left behind by the job: ", record_.leftovers.back()));
        break;
      case GuardMessage::kStuck:
        SetEnd(*message);
        record_.end.verdict = Verdict::kStuck;
        Warn("something cannot be killed; the guard keeps the locks until it is gone");
        break;
      case GuardMessage::kEmpty:
        SetEnd(*message);
        break;
      case GuardMessage::kAck:
        unanswered_since_ns_.reset();
        break;
      case GuardMessage::kNote: {
        const std::string text = message->text;
        constexpr std::string_view kWarning = "warning: ";
        text.starts_with(kWarning) ? Warn(text.substr(kWarning.size())) : Event(text);
        break;
      }
      default:
        break;
    }
  }
}

// Once the job must end, the guard must show that it is at work: it may have been stopped. Measured
// on a clock that a suspended machine does not advance: at resume the guard gets its time.
void Monitor::CheckGuard() {
  if (is_over_) return;
  if (is_guard_gone_) return TakeOver("the guard is gone");
  if (!job_started_ns_.has_value()) return;
  const bool is_overdue = BootNowNs() - *job_started_ns_ > options_.cap_ms * kNsPerMs;
  if (!is_overdue && !stop_cause_.has_value()) return;
  const int64_t now_ns = steady_.NowNs();
  if (!unanswered_since_ns_.has_value() && now_ns - pinged_ns_ >= kPingNs) {
    SendMessage(guard_->socket.get(), GuardMessage::kPing);
    unanswered_since_ns_ = pinged_ns_ = now_ns;
  }
  if (unanswered_since_ns_.has_value() && now_ns - *unanswered_since_ns_ > kGuardAnswerNs) {
    TakeOver("the guard does not answer");
  }
}

// The guard's work, for the case that it cannot do it: orphans come to this process next.
void Monitor::TakeOver(const std::string& why) {
  Warn(absl::StrCat(why, ": run-owned kills the job itself"));
  ::kill(guard_->pid, SIGKILL);
  for (int i = 0; i < 200 && ::waitpid(guard_->pid, nullptr, WNOHANG) == 0; ++i) {
    ::poll(nullptr, 0, 5);
  }
  is_over_ = true;
  is_guard_gone_ = true;
  record_.end.verdict = Verdict::kGuardLost;
  if (main_ < 0) return;
  const Cgroup group = Cgroup::At(record_.cgroup_path);
  std::vector<pid_t> strangers = {guard_->pid};
  if (cards_->helper.has_value()) strangers.push_back(cards_->helper->pid());
  JobTree job(::getpid(), main_, record_.cgroup_path.empty() ? nullptr : &group, strangers);
  Ladder ladder(&job, {.grace_ns = 0, .give_up_ns = options_.give_up_ms * kNsPerMs},
                [this](const std::string& text) { Event(text); });
  ladder.Hurry(BootNowNs());
  // However long it takes: there is no guard any more to keep the locks.
  while (!ladder.is_done()) {
    ::poll(nullptr, 0, 10);
    ladder.Tick(BootNowNs());
    if (ladder.is_stuck()) record_.end.verdict = Verdict::kStuck;
  }
  if (!record_.cgroup_path.empty()) group.Remove();
  record_.end.wait_status = job.main_status().value_or(0);
}

// ---- loop
// ----------------------------------------------------------------------------------------

void Monitor::CheckClocks(int64_t now_ns) {
  const int64_t offset_ns = WallOffsetNs();
  if (std::abs(offset_ns - wall_offset_ns_) > kClockJumpNs) {
    Event(absl::StrFormat("the wall clock jumped by %+.1f s; the cap does not follow it",
                          static_cast<double>(offset_ns - wall_offset_ns_) / kNsPerSecond));
  }
  wall_offset_ns_ = offset_ns;
  if (cards_->helper.has_value() && !record_.is_telemetry_lost && stale_.Check(now_ns)) {
    Warn(absl::StrFormat("telemetry is stale: no sample for %d ms", options_.stale_ms));
    if (options_.requires_telemetry) RequestStop(Cause::kTelemetry, "telemetry is required");
  }
}

void Monitor::ShowProgress(int64_t now_ns) {
  if (!shows_progress_ || now_ns < progress_ns_ || !job_started_ns_.has_value()) return;
  progress_ns_ = now_ns + kNsPerSecond;
  outputs_->Post(Sink::kStderr,
                 absl::StrFormat("\r[%s %s/%s] %s W  permit %s\033[K", ModeName(options_.mode),
                                 MinutesText(now_ns - *job_started_ns_),
                                 MinutesText(options_.cap_ms * kNsPerMs),
                                 last_power_.empty() ? "-" : last_power_,
                                 permit_ == nullptr       ? "not needed"
                                 : record_.is_permit_held ? "held"
                                                          : "withdrawn"));
}

void Monitor::WaitForSomething(int64_t now_ns) {
  int64_t wait_ms = kTickMs;
  if (permit_ != nullptr && !stop_cause_.has_value()) {
    wait_ms = std::clamp<int64_t>((permit_->due_ns() - now_ns) / kNsPerMs + 1, 0, wait_ms);
  }
  const int helper_fd = cards_->helper.has_value() ? cards_->helper->fd() : -1;
  struct pollfd waits[4] = {
      {.fd = guard_->socket.get(), .events = POLLIN, .revents = 0},
      {.fd = signal_fd_, .events = POLLIN, .revents = 0},
      {.fd = permit_ == nullptr ? -1 : permit_->fd(), .events = POLLIN, .revents = 0},
      {.fd = helper_fd, .events = POLLIN, .revents = 0}};
  ::poll(waits, 4, static_cast<int>(wait_ms));
  if ((waits[2].revents & POLLIN) != 0 && permit_->TakeEvents()) has_permit_event_ = true;
}

void Monitor::Run() {
  Event("permit checked again, starting");
  start_sent_ns_ = BootNowNs();
  SendMessage(guard_->socket.get(), GuardMessage::kStart);
  while (!is_over_) {
    // The permit first: nothing else may come between its event and the stop.
    CheckPermitNow(BootNowNs());
    TakeSignals();
    TakeGuardMessages();
    if (is_over_) break;
    TakeSamples();
    CheckClocks(BootNowNs());
    CheckGuard();
    if (is_over_) break;
    ShowProgress(BootNowNs());
    WaitForSomething(BootNowNs());
  }
  const int64_t from_ns = job_started_ns_.value_or(BootNowNs());
  record_.duration_s = static_cast<double>(BootNowNs() - from_ns) / kNsPerSecond;
  if (shows_progress_) outputs_->Post(Sink::kStderr, "\r\033[K");
  TakeFinalSample();
}

void Monitor::Goodbye() {
  SendMessage(guard_->socket.get(), GuardMessage::kGoodbye);
  if (record_.end.verdict == Verdict::kStuck) return;
  // Its end frees the locks; whoever waits for us may count on them.
  for (int i = 0; i < 400 && ::waitpid(guard_->pid, nullptr, WNOHANG) == 0; ++i) {
    ::poll(nullptr, 0, 5);
  }
}

}  // namespace tp2::owned
