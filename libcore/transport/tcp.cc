#include "libcore/transport/tcp.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/transport/socket_util.h"
#include "libcore/transport/tcp_connection.h"

namespace tp2::transport {
namespace {

UniqueFd OpenSocket(const ResolvedAddress& address) {
  return UniqueFd(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

class TcpListener final : public Listener {
 public:
  TcpListener(UniqueFd socket, std::string address, const FrameRule& rule)
      : rule_(rule),
        address_(std::move(address)),
        socket_(std::move(socket)),
        wake_fd_(MakeWakeFd()) {}

  absl::StatusOr<std::unique_ptr<Connection>> Accept(int64_t timeout_ms) override {
    const int64_t deadline_ms = DeadlineFrom(timeout_ms);
    while (!is_stopped_.load()) {
      sockaddr_storage peer{};
      socklen_t peer_bytes = sizeof(peer);
      UniqueFd socket(::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&peer), &peer_bytes,
                                SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.is_open()) {
        TuneSocket(socket.get());
        return std::make_unique<TcpConnection>(std::move(socket), SocketAddressText(peer), rule_);
      }
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return SocketError("accept", errno);
      if (!WaitForFd(socket_.get(), POLLIN, wake_fd_.get(), deadline_ms)) break;
    }
    return std::unique_ptr<Connection>();
  }

  void Stop() override {
    is_stopped_.store(true);
    SignalWakeFd(wake_fd_.get());
  }

  std::string address() const override { return address_; }

 private:
  const FrameRule rule_;
  const std::string address_;
  UniqueFd socket_;
  UniqueFd wake_fd_;
  std::atomic<bool> is_stopped_{false};
};

}  // namespace

absl::StatusOr<BoundSocket> BindTcp(const TcpAddress& address, const char* flag) {
  TP2_ASSIGN_OR_RETURN(const ResolvedAddress resolved, ResolveTcpAddress(address, AI_PASSIVE));
  UniqueFd socket = OpenSocket(resolved);
  if (!socket.is_open()) return SocketError("socket", errno);
  const int on = 1;
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // SOMAXCONN: a storm of connects into a short backlog costs seconds of retransmission each.
  if (::bind(socket.get(), resolved.get(), resolved.storage_bytes) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return MakeError(absl::StatusCode::kUnavailable,
                     {.what = "listen on " + address.ToString(),
                      .expected = "a free address of this machine",
                      .got = SocketError("bind", errno).ToString(),
                      .next = "stop what listens there or pick another with " + std::string(flag)});
  }
  sockaddr_storage bound{};
  socklen_t bound_bytes = sizeof(bound);
  (void)::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &bound_bytes);
  return BoundSocket{std::move(socket), SocketAddressText(bound)};
}

absl::StatusOr<std::unique_ptr<Listener>> TcpListen(const TcpAddress& address,
                                                    const FrameRule& rule) {
  TP2_ASSIGN_OR_RETURN(BoundSocket bound, BindTcp(address, "--listen"));
  return std::make_unique<TcpListener>(std::move(bound.socket), std::move(bound.address), rule);
}

absl::StatusOr<std::unique_ptr<Connection>> TcpConnect(const TcpAddress& address,
                                                       const FrameRule& rule, int64_t timeout_ms) {
  TP2_ASSIGN_OR_RETURN(const ResolvedAddress resolved, ResolveTcpAddress(address, 0));
  UniqueFd socket = OpenSocket(resolved);
  if (!socket.is_open()) return SocketError("socket", errno);
  const std::string what = "connect to " + address.ToString();
  int error_number = 0;
  if (::connect(socket.get(), resolved.get(), resolved.storage_bytes) != 0) error_number = errno;
  if (error_number == EINPROGRESS || error_number == EINTR) {
    if (!WaitForFd(socket.get(), POLLOUT, -1, DeadlineFrom(timeout_ms))) {
      return MakeError(absl::StatusCode::kDeadlineExceeded,
                       {.what = what,
                        .expected = "an answer",
                        .got = "none in " + std::to_string(timeout_ms) + " ms"});
    }
    socklen_t error_bytes = sizeof(error_number);
    (void)::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error_number, &error_bytes);
  }
  if (error_number != 0) return SocketError(what, error_number);
  TuneSocket(socket.get());
  return std::make_unique<TcpConnection>(std::move(socket), address.ToString(), rule);
}

}  // namespace tp2::transport
