#include <arpa/inet.h>
#include <netdb.h>

#include <charconv>
#include <cstring>

#include "libcore/base/error.h"
#include "libcore/transport/tcp.h"

namespace tp2::transport {

std::string TcpAddress::ToString() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

absl::StatusOr<TcpAddress> ParseTcpAddress(std::string_view text) {
  const absl::Status refusal =
      MakeError(absl::StatusCode::kInvalidArgument, {.what = "address",
                                                     .expected = "HOST:PORT or [V6]:PORT",
                                                     .got = "'" + std::string(text) + "'"});
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return refusal;
  std::string_view host = text.substr(0, colon);
  const bool has_brackets = host.front() == '[' && host.back() == ']' && host.size() > 2;
  if (has_brackets) host = host.substr(1, host.size() - 2);
  if (!has_brackets && host.find_first_of(":[]") != std::string_view::npos) return refusal;
  const std::string_view digits = text.substr(colon + 1);
  TcpAddress address{.host = std::string(host)};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
  if (error != std::errc() || end != digits.data() + digits.size()) return refusal;
  return address;
}

absl::StatusOr<ResolvedAddress> ResolveTcpAddress(const TcpAddress& address, int extra_flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | extra_flags;
  // Spelled out, because /etc/hosts may order v6 first while the worker listens on v4.
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  addrinfo* list = nullptr;
  const int error =
      ::getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (error != 0) {
    return MakeError(absl::StatusCode::kUnavailable, {.what = "address " + address.ToString(),
                                                      .expected = "a known host",
                                                      .got = ::gai_strerror(error)});
  }
  ResolvedAddress resolved;
  std::memcpy(&resolved.storage, list->ai_addr, list->ai_addrlen);
  resolved.storage_bytes = list->ai_addrlen;
  ::freeaddrinfo(list);
  return resolved;
}

bool IsLoopback(const TcpAddress& address) {
  if (address.host == "localhost" || address.host == "::1") return true;
  in_addr v4;
  constexpr uint32_t kLoopbackNet = 127;
  return ::inet_pton(AF_INET, address.host.c_str(), &v4) == 1 &&
         (ntohl(v4.s_addr) >> 24) == kLoopbackNet;
}

}  // namespace tp2::transport
