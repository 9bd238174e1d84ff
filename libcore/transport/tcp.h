// Frames over TCP: no delay, bounded waits, safe against SIGPIPE and EINTR, restartable on the same
// port at once.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <string>
#include <string_view>

#include "libcore/base/unique_fd.h"
#include "libcore/transport/transport.h"

namespace tp2::transport {

struct TcpAddress {
  std::string host;  // "127.0.0.1", "::1", "localhost"
  uint16_t port = 0;

  std::string ToString() const;  // "[::1]:18627"
};

// "HOST:PORT" or "[V6]:PORT". Errors: kInvalidArgument.
absl::StatusOr<TcpAddress> ParseTcpAddress(std::string_view text);

// The first address that a host name has. Errors: kUnavailable for an unknown host.
struct ResolvedAddress {
  sockaddr_storage storage{};
  socklen_t storage_bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
absl::StatusOr<ResolvedAddress> ResolveTcpAddress(const TcpAddress& address, int extra_flags);

// Whether only this machine can reach the address. Names other than "localhost" never are.
bool IsLoopback(const TcpAddress& address);

// A listening TCP socket, non-blocking, and its address with the port that was picked.
struct BoundSocket {
  UniqueFd socket;
  std::string address;
};
// `flag` is what an error tells the operator to change. Errors: kUnavailable when the address is
// taken or not of this machine.
absl::StatusOr<BoundSocket> BindTcp(const TcpAddress& address, const char* flag);

// Port 0 picks one. Errors: kUnavailable when the address is taken or not of this machine.
absl::StatusOr<std::unique_ptr<Listener>> TcpListen(const TcpAddress& address,
                                                    const FrameRule& rule);

// Errors: kUnavailable (refused, unreachable, unknown name), kDeadlineExceeded.
absl::StatusOr<std::unique_ptr<Connection>> TcpConnect(const TcpAddress& address,
                                                       const FrameRule& rule, int64_t timeout_ms);

}  // namespace tp2::transport
