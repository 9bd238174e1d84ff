// failing_worker PORT: a worker over the fake engine whose every STEP fails, with dspark-serve's
// exit codes. For tests of whoever restarts it.
#include <cstdio>
#include <cstdlib>

#include "libcore/report/exit_code.h"
#include "libcore/server/step_server.h"
#include "libcore/transport/tcp.h"
#include "tests/support/fake_engine.h"

int main(int argc, char** argv) {
  if (argc != 2) return tp2::kExitUsage;
  const tp2::SteadyClock clock;
  tp2::testing::FakeEngine engine;
  engine.failing_steps = 1'000'000;
  const tp2::server::ServerOptions options;
  tp2::server::StepServer server(&engine, options, &clock);
  auto listener = tp2::transport::TcpListen(
      {.host = "127.0.0.1", .port = static_cast<uint16_t>(std::atoi(argv[1]))},
      tp2::server::StepServer::RequestRule(options));
  if (!listener.ok()) return tp2::ReportStatus("failing_worker", listener.status());
  server.Listen(std::move(listener).value());
  return server.Run() == tp2::server::ServeEnd::kDrained ? tp2::kExitOk : tp2::kExitDevice;
}
