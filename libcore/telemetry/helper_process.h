// NVML in a process of its own: a call that hangs in the driver delays no one. The helper lists the
// cards, then samples chosen ones at a fixed period, and ends with whoever started it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/base/unique_fd.h"
#include "libcore/telemetry/cards.h"
#include "libcore/telemetry/sample.h"

namespace tp2::telemetry {

// Thread-compatible. No call blocks longer than its timeout.
class HelperProcess {
 public:
  // Forks: only while the process has one thread. The helper keeps no other descriptor than its two
  // pipes. Errors: kUnavailable.
  static absl::StatusOr<HelperProcess> Start(const std::string& library);

  HelperProcess(HelperProcess&& other) noexcept;
  HelperProcess& operator=(HelperProcess&&) = delete;
  // Asks the helper to end, then SIGTERM, then SIGKILL, with kPatienceMs after each: a driver may
  // freeze a card whose reader is killed in the middle of a call. A helper that is stuck in the
  // kernel is left to the system.
  ~HelperProcess();

  // Call first. Errors: kUnavailable with NVML's own words, kDeadlineExceeded.
  absl::StatusOr<std::vector<CardInfo>> ReadCards(int timeout_ms);
  const std::string& driver_version() const { return driver_version_; }

  // From now on a sample comes every `period_ms`, the first at once. Errors: kUnavailable.
  absl::Status Begin(std::span<const CardInfo> cards, int period_ms);
  // Becomes readable when Drain has something to take; -1 once the helper is gone.
  int fd() const { return from_helper_.get(); }
  pid_t pid() const { return pid_; }
  // All samples that have arrived. Never blocks. Errors: kUnavailable when the helper is gone,
  // kDataLoss when it talks nonsense; both for good.
  absl::StatusOr<std::vector<Sample>> Drain();
  // The next sample, or kDeadlineExceeded.
  absl::StatusOr<Sample> WaitSample(int timeout_ms);
  // Asks for one more sample at once.
  absl::Status RequestSample();

 private:
  static constexpr int kPatienceMs = 400;

  HelperProcess(pid_t pid, UniqueFd to_helper, UniqueFd from_helper)
      : pid_(pid), to_helper_(std::move(to_helper)), from_helper_(std::move(from_helper)) {}
  absl::Status Send(const Json& message);
  // Moves what has arrived into lines_.
  absl::Status Pump();
  absl::StatusOr<std::string> WaitLine(int timeout_ms);

  pid_t pid_ = -1;
  UniqueFd to_helper_;
  UniqueFd from_helper_;
  std::string partial_;
  std::deque<std::string> lines_;
  std::string driver_version_;
};

}  // namespace tp2::telemetry
