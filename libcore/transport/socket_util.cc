#include "libcore/transport/socket_util.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <system_error>

#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace tp2::transport {

absl::Status SocketError(const std::string& what, int error_number) {
  return MakeError(
      absl::StatusCode::kUnavailable,
      {.what = what, .expected = "success", .got = std::generic_category().message(error_number)});
}

std::string SocketAddressText(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    return "[" + std::string(text) + "]:" + std::to_string(ntohs(v6.sin6_port));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
  ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
  return std::string(text) + ":" + std::to_string(ntohs(v4.sin_port));
}

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int LeftMs(int64_t deadline_ms) {
  if (deadline_ms == kNoDeadline) return -1;
  const int64_t left_ms = deadline_ms - NowMs();
  return static_cast<int>(std::clamp<int64_t>(left_ms, 0, std::numeric_limits<int>::max()));
}

bool WaitForFd(int fd, int16_t events, int wake_fd, int64_t deadline_ms) {
  while (true) {
    pollfd fds[2] = {{.fd = fd, .events = events, .revents = 0},
                     {.fd = wake_fd, .events = POLLIN, .revents = 0}};
    const int ready = ::poll(fds, wake_fd >= 0 ? 2 : 1, LeftMs(deadline_ms));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return true;  // let the read or write report what is wrong
  }
}

void TuneSocket(int fd) {
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const int user_timeout_ms = 3000;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof(user_timeout_ms));
  // A peer whose machine or cable is gone says nothing: asked every second, given up after three.
  // Without this only the idle limit of the layer above would find out.
  const int interval_s = 1;
  const int probes = 2;
  (void)::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &interval_s, sizeof(interval_s));
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  const int flags = ::fcntl(fd, F_GETFL);
  (void)::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

UniqueFd MakeWakeFd() {
  UniqueFd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  TP2_CHECK(fd.is_open());
  return fd;
}

void SignalWakeFd(int fd) {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the fd is readable anyway.
  (void)!::write(fd, &one, sizeof(one));
}

void DrainWakeFd(int fd) {
  uint64_t count;
  (void)!::read(fd, &count, sizeof(count));
}

}  // namespace tp2::transport
