// Frames over RDMA (libibverbs, librdmacm): reliable connections, each frame one RDMA WRITE WITH
// IMMEDIATE into a slot of the receiver's registered ring, where it stays until Release. The same
// address and port number as TCP; the two do not disturb each other.
//
// Rule of slots: a party may write into a slot of its peer's ring when the peer has released the
// frame before, and every Release says so at once by an empty write with its own immediate. A reply
// is no release: transports know no replies, and a server holds a request's rows beyond its reply.
// Whoever writes into a slot that was not released, skips a number or sends what is no frame is cut
// off. A peer can rewrite its frame while it is held; whoever reads it copies what it checks.
//
// A frame is complete when its immediate arrives, so Receive never reports kStalled. A peer whose
// process ended is noticed by the connection manager, one whose machine is gone by an empty write
// after a second of silence, one that is merely stopped by nobody but the deadline of a caller.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "libcore/transport/networks.h"
#include "libcore/transport/tcp.h"
#include "libcore/transport/transport.h"
#include "libcore/transport/verbs_wire.h"

namespace tp2::transport {

struct VerbsOptions {
  VerbsUuid uuid{};           // of this process, for the peer's logs
  VerbsUuid identity{};       // both ends must have the same
  size_t max_send_bytes = 0;  // of one frame, header included
  // Listeners only: from where requests are taken; empty: from anywhere.
  NetworkList allowed_clients = {};
  // Listeners only, optional: called from Accept.
  std::function<void(const std::string& peer, Refusal refusal)> on_refused = {};
};

// Errors: kUnavailable when there is no RDMA device for the address, the port is taken or memory
// cannot be locked; kUnimplemented in builds without RDMA.
absl::StatusOr<std::unique_ptr<Listener>> VerbsListen(const TcpAddress& address,
                                                      const FrameRule& rule,
                                                      const VerbsOptions& options);

// Errors: as VerbsListen, and kUnavailable when nobody listens, kDeadlineExceeded,
// kPermissionDenied (not an allowed network), kFailedPrecondition (another refusal).
absl::StatusOr<std::unique_ptr<Connection>> VerbsConnect(const TcpAddress& address,
                                                         const FrameRule& rule,
                                                         const VerbsOptions& options,
                                                         int64_t timeout_ms);

}  // namespace tp2::transport
