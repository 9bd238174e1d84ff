#include "libcore/telemetry/helper_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/telemetry/nvml.h"
#include "libcore/telemetry/sampler.h"

namespace tp2::telemetry {
namespace {

constexpr size_t kMaxLineBytes = 1 << 20;
constexpr int64_t kNsPerMs = 1'000'000;

absl::Status Gone(const std::string& got) {
  return MakeError(
      absl::StatusCode::kUnavailable,
      {.what = "telemetry helper", .expected = "an answer", .got = got, .where = "", .next = ""});
}

int LeftMs(int64_t deadline_ns) {
  return static_cast<int>(std::max<int64_t>(0, (deadline_ns - BootNowNs()) / kNsPerMs));
}

// ---- inside the helper
// ---------------------------------------------------------------------------

bool WriteLine(int fd, const Json& json) {
  std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t put = ::write(fd, rest.data(), rest.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    rest.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

// Lines from the parent; nothing else ever arrives. False when the parent is gone.
bool ReadSome(int fd, std::string& text) {
  char buffer[4096];
  const ssize_t got = ::read(fd, buffer, sizeof buffer);
  if (got < 0) return errno == EINTR;
  text.append(buffer, static_cast<size_t>(got));
  return got > 0;
}

void SampleUntilParentGoes(const Nvml& nvml, const Json& order, int in, int out) {
  std::vector<CardInfo> cards;
  for (const Json& entry : order["cards"]) {
    const absl::StatusOr<CardInfo> card = CardFromJson(entry);
    if (card.ok()) cards.push_back(*card);
  }
  const int64_t period_ns = order["period_ms"].get<int64_t>() * kNsPerMs;
  const Sampler sampler(&nvml, cards);
  int64_t next_ns = BootNowNs();
  std::string ignored;
  while (true) {
    if (BootNowNs() >= next_ns) {
      if (!WriteLine(out, ToJson(sampler.Read()))) return;
      // A slow driver makes samples rarer, never a burst.
      next_ns = std::max(next_ns + period_ns, BootNowNs());
    }
    struct pollfd wait = {.fd = in, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wait, 1, LeftMs(next_ns) + 1);
    if (ready > 0) {
      if (!ReadSome(in, ignored)) return;
      next_ns = BootNowNs();  // any line asks for a sample at once
      ignored.clear();
    }
  }
}

void HelperMain(const std::string& library, int in, int out) {
  const absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open(library);
  if (!nvml.ok()) {
    WriteLine(out, {{"error", std::string(nvml.status().message())}});
    return;
  }
  const absl::StatusOr<std::vector<CardInfo>> cards = (*nvml)->Cards();
  if (!cards.ok()) {
    WriteLine(out, {{"error", std::string(cards.status().message())}});
    return;
  }
  Json answer = {{"driver", (*nvml)->DriverVersion()}, {"cards", Json::array()}};
  for (const CardInfo& card : *cards) answer["cards"].push_back(ToJson(card));
  if (!WriteLine(out, answer)) return;
  std::string text;
  while (text.find('\n') == std::string::npos) {
    if (!ReadSome(in, text)) return;
  }
  const absl::StatusOr<Json> order = ParseJson(text.substr(0, text.find('\n')), "order");
  if (order.ok()) SampleUntilParentGoes(**nvml, *order, in, out);
}

[[noreturn]] void RunHelper(const std::string& library, int in, int out, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(0);
  ::prctl(PR_SET_NAME, "telemetry");
  // Its own group: a ^C or a signal to the tool's group is the tool's business.
  ::setpgid(0, 0);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) ::signal(number, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null.get(), fd);
  HelperMain(library, in, out);
  ::_exit(0);
}

}  // namespace

// ---- in the parent
// -------------------------------------------------------------------------------

absl::StatusOr<HelperProcess> HelperProcess::Start(const std::string& library) {
  int down[2];
  int up[2];
  if (::pipe2(down, O_CLOEXEC) != 0) return Gone(ErrnoText());
  UniqueFd in(down[0]);
  UniqueFd to_helper(down[1]);
  if (::pipe2(up, O_CLOEXEC) != 0) return Gone(ErrnoText());
  UniqueFd from_helper(up[0]);
  UniqueFd out(up[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Gone(ErrnoText());
  if (pid == 0) {
    to_helper.Reset();
    from_helper.Reset();
    RunHelper(library, in.get(), out.get(), parent);
  }
  ::fcntl(from_helper.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(to_helper.get(), F_SETFL, O_NONBLOCK);
  return HelperProcess(pid, std::move(to_helper), std::move(from_helper));
}

HelperProcess::HelperProcess(HelperProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      to_helper_(std::move(other.to_helper_)),
      from_helper_(std::move(other.from_helper_)),
      partial_(std::move(other.partial_)),
      lines_(std::move(other.lines_)),
      driver_version_(std::move(other.driver_version_)) {}

HelperProcess::~HelperProcess() {
  if (pid_ < 0) return;
  to_helper_.Reset();
  constexpr int kStepMs = 5;
  for (int waited_ms = 0; waited_ms < 3 * kPatienceMs; waited_ms += kStepMs) {
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) return;
    if (waited_ms == kPatienceMs) ::kill(pid_, SIGTERM);
    if (waited_ms == 2 * kPatienceMs) ::kill(pid_, SIGKILL);
    ::poll(nullptr, 0, kStepMs);
  }
}

absl::Status HelperProcess::Send(const Json& message) {
  const std::string line = message.dump() + "\n";
  if (::write(to_helper_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return Gone(ErrnoText());
  }
  return absl::OkStatus();
}

absl::Status HelperProcess::Pump() {
  char buffer[65536];
  while (from_helper_.is_open()) {
    const ssize_t got = ::read(from_helper_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return absl::OkStatus();
    if (got <= 0) {
      from_helper_.Reset();
      break;
    }
    partial_.append(buffer, static_cast<size_t>(got));
    for (size_t end; (end = partial_.find('\n')) != std::string::npos;) {
      lines_.push_back(partial_.substr(0, end));
      partial_.erase(0, end + 1);
    }
    if (partial_.size() > kMaxLineBytes) {
      from_helper_.Reset();
      return absl::DataLossError("telemetry helper: expected lines, got one without end");
    }
  }
  return Gone("the end of it");
}

absl::StatusOr<std::string> HelperProcess::WaitLine(int timeout_ms) {
  const int64_t deadline_ns = BootNowNs() + timeout_ms * kNsPerMs;
  while (true) {
    const absl::Status status = Pump();
    if (!lines_.empty()) {
      std::string line = std::move(lines_.front());
      lines_.pop_front();
      return line;
    }
    TP2_RETURN_IF_ERROR(status);
    if (LeftMs(deadline_ns) == 0) {
      return MakeError(absl::StatusCode::kDeadlineExceeded,
                       {.what = "NVML",
                        .expected = "an answer within " + std::to_string(timeout_ms) + " ms",
                        .got = "none",
                        .where = "",
                        .next = "check the driver and the cards"});
    }
    struct pollfd wait = {.fd = from_helper_.get(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, LeftMs(deadline_ns));
  }
}

absl::StatusOr<std::vector<CardInfo>> HelperProcess::ReadCards(int timeout_ms) {
  TP2_ASSIGN_OR_RETURN(const std::string line, WaitLine(timeout_ms));
  TP2_ASSIGN_OR_RETURN(const Json answer, ParseJson(line, "telemetry helper"));
  if (answer.is_object() && answer.contains("error") && answer["error"].is_string()) {
    return absl::UnavailableError(answer["error"].get<std::string>());
  }
  if (!answer.is_object() || !answer.contains("cards") || !answer["cards"].is_array()) {
    return absl::DataLossError("telemetry helper: expected cards");
  }
  if (answer.contains("driver") && answer["driver"].is_string()) {
    driver_version_ = answer["driver"].get<std::string>();
  }
  std::vector<CardInfo> cards;
  for (const Json& entry : answer["cards"]) {
    TP2_ASSIGN_OR_RETURN(cards.emplace_back(), CardFromJson(entry));
  }
  return cards;
}

absl::Status HelperProcess::Begin(std::span<const CardInfo> cards, int period_ms) {
  Json order = {{"period_ms", period_ms}, {"cards", Json::array()}};
  for (const CardInfo& card : cards) order["cards"].push_back(ToJson(card));
  return Send(order);
}

absl::StatusOr<std::vector<Sample>> HelperProcess::Drain() {
  const absl::Status status = Pump();
  std::vector<Sample> samples;
  while (!lines_.empty()) {
    TP2_ASSIGN_OR_RETURN(Sample sample, WaitSample(0));
    samples.push_back(std::move(sample));
  }
  if (samples.empty()) TP2_RETURN_IF_ERROR(status);
  return samples;
}

absl::StatusOr<Sample> HelperProcess::WaitSample(int timeout_ms) {
  TP2_ASSIGN_OR_RETURN(const std::string line, WaitLine(timeout_ms));
  TP2_ASSIGN_OR_RETURN(const Json json, ParseJson(line, "telemetry helper"));
  return SampleFromJson(json);
}

absl::Status HelperProcess::RequestSample() { return Send({{"request", "sample"}}); }

}  // namespace tp2::telemetry
