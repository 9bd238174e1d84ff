#include "cmd/run-owned/outputs.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"

namespace tp2::owned {
namespace {

constexpr size_t kRelayBytes = 64 << 10;

}  // namespace

void EnsureStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    // open returns the lowest free number, which is this one.
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd)
      return;
  }
}

int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put > 0) {
      text.remove_prefix(static_cast<size_t>(put));
    } else if (put < 0 && errno == EAGAIN) {
      // A caller's stream may be in non-blocking mode, which is not ours to change.
      struct pollfd wait = {.fd = fd, .events = POLLOUT, .revents = 0};
      ::poll(&wait, 1, -1);
    } else if (put < 0 && errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

Outputs::Outputs(UniqueFd job_out, UniqueFd job_err, UniqueFd log, UniqueFd telemetry)
    : shared_(std::make_shared<Shared>()) {
  shared_->job_out = std::move(job_out);
  shared_->job_err = std::move(job_err);
  shared_->log = std::move(log);
  shared_->telemetry = std::move(telemetry);
  StartRelay(shared_->job_out.get(), STDOUT_FILENO);
  StartRelay(shared_->job_err.get(), STDERR_FILENO);
  StartThread(&Shared::running_writers, WriteQueue);
}

Outputs::~Outputs() { Finish(0); }

template <class Body>
void Outputs::StartThread(int Shared::*running, Body body) {
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);  // others run already
    ++((*shared_).*running);
  }
  std::thread([shared = shared_, running, body] {
    body(shared);
    const std::lock_guard<std::mutex> lock(shared->mutex);
    --((*shared).*running);
    shared->changed.notify_all();
  }).detach();
}

void Outputs::StartRelay(int from, int to) {
  StartThread(&Shared::running_relays,
              [from, to](const std::shared_ptr<Shared>& shared) { Relay(shared, from, to); });
}

void Outputs::Post(Sink sink, std::string text) {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  if (shared_->queued_bytes + text.size() > kMaxQueuedBytes) {
    if (sink != Sink::kStderr) shared_->failure = "the disk is too slow: lines were dropped";
    return;
  }
  shared_->queued_bytes += text.size();
  shared_->queue.emplace_back(sink, std::move(text));
  shared_->changed.notify_all();
}

std::string Outputs::failure() const {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->failure;
}

bool Outputs::has_telemetry_failed() const {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->has_telemetry_failed;
}

void Outputs::AwaitJob(int timeout_ms) {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                            [this] { return shared_->running_relays == 0; });
}

void Outputs::Finish(int timeout_ms) {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->is_closed = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), [this] {
    return shared_->running_relays == 0 && shared_->running_writers == 0;
  });
}

void Outputs::Relay(const std::shared_ptr<Shared>& shared, int from, int to) {
  std::array<char, kRelayBytes> buffer;
  bool is_wanted = true;
  while (true) {
    const ssize_t got = ::read(from, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    const std::string_view text(buffer.data(), static_cast<size_t>(got));
    WriteFile(*shared, Sink::kLog, text);
    // A reader that has gone, or a full disk behind it, does not end the job.
    if (is_wanted && WriteAll(to, text) != 0) is_wanted = false;
  }
}

void Outputs::WriteFile(Shared& shared, Sink sink, std::string_view text) {
  const int fd = sink == Sink::kLog ? shared.log.get() : shared.telemetry.get();
  if (fd < 0) return;
  const int error = WriteAll(fd, text);
  if (error == 0) return;
  std::string failure;
  {
    const std::lock_guard<std::mutex> lock(shared.mutex);
    if (sink == Sink::kTelemetry) shared.has_telemetry_failed = true;
    if (!shared.failure.empty()) return;
    errno = error;
    failure = absl::StrCat(sink == Sink::kLog ? "log" : "telemetry file", ": ", ErrnoText());
    shared.failure = failure;
  }
  WriteAll(STDERR_FILENO, absl::StrCat("run-owned: error: ", failure, "; the job goes on\n"));
}

void Outputs::WriteQueue(const std::shared_ptr<Shared>& shared) {
  while (true) {
    std::pair<Sink, std::string> item;
    {
      std::unique_lock<std::mutex> lock(shared->mutex);
      shared->changed.wait(lock, [&shared] { return shared->is_closed || !shared->queue.empty(); });
      if (shared->queue.empty()) return;
      item = std::move(shared->queue.front());
      shared->queue.pop_front();
      shared->queued_bytes -= item.second.size();
    }
    if (item.first == Sink::kStderr) {
      WriteAll(STDERR_FILENO, item.second);
    } else {
      WriteFile(*shared, item.first, item.second);
    }
  }
}

}  // namespace tp2::owned
