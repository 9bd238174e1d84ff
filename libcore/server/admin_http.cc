#include "libcore/server/admin_http.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/transport/socket_util.h"

namespace tp2::server {
namespace {

const char* Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 503:
      return "Service Unavailable";
    default:
      return "Unknown";
  }
}

std::string Render(const HttpResponse& response, bool has_body) {
  return absl::StrCat("HTTP/1.1 ", response.status, " ", Reason(response.status),
                      "\r\nContent-Type: ", response.content_type,
                      "\r\nContent-Length: ", response.body.size(),
                      "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff"
                      "\r\nContent-Security-Policy: default-src 'none'; style-src 'unsafe-inline'"
                      "\r\nConnection: close\r\n\r\n",
                      has_body ? response.body : "");
}

}  // namespace

absl::StatusOr<std::unique_ptr<AdminHttp>> AdminHttp::Start(const transport::TcpAddress& address,
                                                            Handler handler) {
  if (!transport::IsLoopback(address)) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = "admin",
                      .expected = "a loopback address, for its readers are not authenticated",
                      .got = address.ToString(),
                      .next = "use 127.0.0.1 and scrape through a local agent or a tunnel"});
  }
  TP2_ASSIGN_OR_RETURN(transport::BoundSocket bound, transport::BindTcp(address, "--admin"));
  return std::unique_ptr<AdminHttp>(new AdminHttp(std::move(bound), std::move(handler)));
}

AdminHttp::AdminHttp(transport::BoundSocket bound, Handler handler)
    : address_(std::move(bound.address)),
      listener_(std::move(bound.socket)),
      stop_fd_(transport::MakeWakeFd()),
      handler_(std::move(handler)),
      thread_([this] { Run(); }) {}

AdminHttp::~AdminHttp() {
  transport::SignalWakeFd(stop_fd_.get());
  thread_.join();
}

void AdminHttp::Run() {
  constexpr int kTickMs = 100;
  std::vector<pollfd> fds;
  while (true) {
    fds.assign({{.fd = stop_fd_.get(), .events = POLLIN, .revents = 0}});
    // A full house is not listened for: the kernel's backlog waits.
    const bool has_room = peers_.size() < kMaxConnections;
    fds.push_back({.fd = has_room ? listener_.get() : -1, .events = POLLIN, .revents = 0});
    for (const Peer& peer : peers_) {
      const int16_t events = peer.response.empty() ? POLLIN : POLLOUT;
      fds.push_back({.fd = peer.socket.get(), .events = events, .revents = 0});
    }
    (void)::poll(fds.data(), fds.size(), peers_.empty() ? -1 : kTickMs);
    if (fds[0].revents != 0) return;
    const int64_t now_ms = transport::NowMs();
    size_t kept = 0;
    for (size_t i = 0; i < peers_.size(); ++i) {
      const bool is_over =
          now_ms >= peers_[i].deadline_ms || (fds[i + 2].revents != 0 && !Advance(&peers_[i]));
      if (is_over) continue;
      if (kept != i) peers_[kept] = std::move(peers_[i]);
      ++kept;
    }
    peers_.resize(kept);
    if (fds[1].revents != 0) AcceptSome();
  }
}

void AdminHttp::AcceptSome() {
  while (peers_.size() < kMaxConnections) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) return;
    Peer peer;
    peer.socket = std::move(socket);
    peer.deadline_ms = transport::NowMs() + kRequestMs;
    peers_.push_back(std::move(peer));
  }
}

bool AdminHttp::ReadSome(Peer* peer) {
  char buffer[2048];
  const ssize_t count = ::recv(peer->socket.get(), buffer, sizeof(buffer), 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  peer->request.append(buffer, static_cast<size_t>(count));
  const bool is_complete = peer->request.find("\r\n\r\n") != std::string::npos;
  if (is_complete) peer->response = Answer(peer->request);
  if (!is_complete && peer->request.size() > kMaxRequestBytes) {
    peer->response = Render({.status = 400, .body = "request too long\n"}, true);
  }
  return true;
}

bool AdminHttp::Advance(Peer* peer) {
  if (peer->response.empty() && !ReadSome(peer)) return false;
  while (peer->sent_bytes < peer->response.size()) {
    const ssize_t count =
        ::send(peer->socket.get(), peer->response.data() + peer->sent_bytes,
               peer->response.size() - peer->sent_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    peer->sent_bytes += static_cast<size_t>(count);
  }
  return peer->response.empty();
}

std::string AdminHttp::Answer(const std::string& request) const {
  const std::string line = request.substr(0, request.find("\r\n"));
  const size_t first = line.find(' ');
  const size_t second = first == std::string::npos ? first : line.find(' ', first + 1);
  if (second == std::string::npos || line.compare(second + 1, 5, "HTTP/") != 0) {
    return Render({.status = 400, .body = "not a request\n"}, true);
  }
  const std::string method = line.substr(0, first);
  if (method != "GET" && method != "HEAD") {
    return Render({.status = 405, .body = "only GET\n"}, true);
  }
  const std::string target = line.substr(first + 1, second - first - 1);
  return Render(handler_(target.substr(0, target.find('?'))), method == "GET");
}

}  // namespace tp2::server
