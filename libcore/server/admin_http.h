// A GET-only HTTP/1.1 responder for one operator and one scraper: its own thread, a few
// connections, small requests, deadlines, and no part in serving. Every response closes its
// connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/base/unique_fd.h"
#include "libcore/transport/tcp.h"

namespace tp2::server {

struct HttpResponse {
  int status = 200;  // 200, 404 or 503 from handlers
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

class AdminHttp {
 public:
  // Called on the admin thread; `path` has no query.
  using Handler = std::function<HttpResponse(const std::string& path)>;

  static constexpr size_t kMaxRequestBytes = 8192;
  static constexpr size_t kMaxConnections = 32;
  static constexpr int64_t kRequestMs = 2'000;  // from accept to the last byte of the response

  // Errors: kInvalidArgument for an address that others can reach, else as BindTcp.
  static absl::StatusOr<std::unique_ptr<AdminHttp>> Start(const transport::TcpAddress& address,
                                                          Handler handler);
  ~AdminHttp();
  AdminHttp(const AdminHttp&) = delete;
  AdminHttp& operator=(const AdminHttp&) = delete;

  const std::string& address() const { return address_; }

 private:
  struct Peer {
    UniqueFd socket;
    int64_t deadline_ms = 0;
    std::string request;
    std::string response;  // empty until the request is complete
    size_t sent_bytes = 0;
  };

  AdminHttp(transport::BoundSocket bound, Handler handler);
  void Run();
  void AcceptSome();
  // False: the peer is done with.
  bool Advance(Peer* peer);
  bool ReadSome(Peer* peer);
  std::string Answer(const std::string& request) const;

  const std::string address_;
  UniqueFd listener_;
  UniqueFd stop_fd_;
  const Handler handler_;
  std::vector<Peer> peers_;  // thread only
  std::thread thread_;       // last: everything above exists when it starts
};

}  // namespace tp2::server
