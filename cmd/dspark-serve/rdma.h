// The RDMA listener beside the TCP one, as the setting `rdma` wants it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "libcore/config/worker_config.h"
#include "libcore/drafter/step_engine.h"
#include "libcore/server/step_server.h"
#include "libcore/transport/tcp.h"
#include "libcore/transport/transport.h"

namespace tp2::serve {

// Before anything is loaded. Errors: kInvalidArgument when RDMA is required on a loopback address.
absl::Status CheckRdma(const config::WorkerConfig& config, const transport::TcpAddress& listen);

// `address` is where TCP listens. Null when RDMA is off, or wanted only if there is any and there
// is none, which the log then says. Errors: kUnavailable, kUnimplemented when it is required.
absl::StatusOr<std::unique_ptr<transport::Listener>> ListenRdma(
    const config::WorkerConfig& config, const transport::TcpAddress& address,
    const server::StepServer& server, const server::ServerOptions& options,
    const EngineInfo& engine);

}  // namespace tp2::serve
