#include "cmd/dspark-serve/rdma.h"

#include <spdlog/spdlog.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/client/verbs_connect.h"
#include "libcore/contract/limits.h"
#include "libcore/server/log_limit.h"
#include "libcore/transport/verbs.h"

namespace tp2::serve {
namespace {

// Nobody comes from outside over loopback, and from inside TCP is as good.
bool IsOff(const config::WorkerConfig& config, const transport::TcpAddress& address) {
  return config.rdma == "off" || (config.rdma == "auto" && transport::IsLoopback(address));
}

// Says who was turned away, but not as often as strangers like.
std::function<void(const std::string&, transport::Refusal)> RefusalLog() {
  static const SteadyClock clock;
  const auto limit = std::make_shared<server::LogLimit>(&clock);
  return [limit](const std::string& peer, transport::Refusal refusal) {
    if (const std::optional<int64_t> unsaid = limit->Pass()) {
      spdlog::warn("RDMA connection {} refused: {} ({} more unsaid)", peer,
                   transport::RefusalName(refusal), *unsaid);
    }
  };
}

}  // namespace

absl::Status CheckRdma(const config::WorkerConfig& config, const transport::TcpAddress& listen) {
  if (config.rdma != "require" || !transport::IsLoopback(listen)) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = "rdma",
                    .expected = "with 'require' the address of an RDMA device in --listen",
                    .got = config.listen,
                    .next = "listen on that address, or leave RDMA to 'auto'"});
}

absl::StatusOr<std::unique_ptr<transport::Listener>> ListenRdma(
    const config::WorkerConfig& config, const transport::TcpAddress& address,
    const server::StepServer& server, const server::ServerOptions& options,
    const EngineInfo& engine) {
  if (IsOff(config, address)) return nullptr;
  auto listener = transport::VerbsListen(address, server::StepServer::RequestRule(options),
                                         {.uuid = server.health().instance,
                                          .identity = client::VerbsIdentity(engine.identity_digest),
                                          .max_send_bytes = contract::kMaxReplyBytes,
                                          .allowed_clients = options.allowed_clients,
                                          .on_refused = RefusalLog()});
  if (listener.ok() || config.rdma == "require") return listener;
  spdlog::info("no RDMA: {}", std::string(listener.status().message()));
  return nullptr;
}

}  // namespace tp2::serve
