// The other process of rdma_test, to be killed or stopped.
//
// usage: rdma_peer serve PORT     a worker over the fake engine; prints "ready"
//        rdma_peer hold PORT      a client with an open slot; prints "held" and does nothing more
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/rdma/big_rows.h"

namespace tp2::testing {
namespace {

void Say(const char* line) {
  std::puts(line);
  std::fflush(stdout);
}

int Serve(uint16_t port) {
  spdlog::set_level(spdlog::level::off);
  BigServer worker(port);
  Say("ready");
  (void)worker.server().Run();
  return 0;
}

int Hold(uint16_t port) {
  const auto session = NewRdmaSession({.host = RdmaAddress(), .port = port});
  if (session == nullptr || !session->Open({.base = 0}).ok()) return 1;
  Say("held");
  while (true) ::pause();
}

}  // namespace
}  // namespace tp2::testing

int main(int argc, char** argv) {
  if (argc != 3 || tp2::testing::RdmaAddress() == nullptr) return 2;
  const auto port = static_cast<uint16_t>(std::strtoul(argv[2], nullptr, 10));
  return std::strcmp(argv[1], "serve") == 0 ? tp2::testing::Serve(port) : tp2::testing::Hold(port);
}
