// Small wrappers over socket calls, shared by the TCP listener, connector and connection.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/base/unique_fd.h"

namespace tp2::transport {

// "what: expected ..., got <errno text>", kUnavailable.
absl::Status SocketError(const std::string& what, int error_number);

std::string SocketAddressText(const sockaddr_storage& address);

// Milliseconds of a clock that never goes back.
int64_t NowMs();

// What is left of a deadline, for poll: -1 for none, never below 0 otherwise.
int LeftMs(int64_t deadline_ms);
inline constexpr int64_t kNoDeadline = -1;
inline int64_t DeadlineFrom(int64_t timeout_ms) {
  return timeout_ms < 0 ? kNoDeadline : NowMs() + timeout_ms;
}

// Waits for `events` on fd, or for wake_fd (-1: none) to be readable. True when something is ready;
// false when the time is over. EINTR is waited through.
bool WaitForFd(int fd, int16_t events, int wake_fd, int64_t deadline_ms);

// No delay, no blocking, and an answer within seconds when the peer's machine is gone.
void TuneSocket(int fd);

// An eventfd.
UniqueFd MakeWakeFd();
void SignalWakeFd(int fd);
void DrainWakeFd(int fd);

}  // namespace tp2::transport
