// DSPK/1 over RDMA: what a client and its worker put into the transport's private data.
#pragma once

#include <algorithm>
#include <memory>

#include "absl/status/statusor.h"
#include "libcore/base/digest.h"
#include "libcore/base/entropy.h"
#include "libcore/contract/limits.h"
#include "libcore/transport/verbs.h"

namespace tp2::client {

// The first half of the digest: enough to turn away who has another checkpoint before anything is
// allocated for it; HELLO compares all of it.
inline transport::VerbsUuid VerbsIdentity(const Sha256Digest& identity) {
  transport::VerbsUuid half;
  std::copy_n(identity.begin(), half.size(), half.begin());
  return half;
}

// Errors: as transport::VerbsConnect.
inline absl::StatusOr<std::unique_ptr<transport::Connection>> ConnectVerbs(
    const transport::TcpAddress& address, const transport::FrameRule& rule,
    const Sha256Digest& identity, int64_t timeout_ms) {
  return transport::VerbsConnect(
      address, rule,
      {.uuid = RandomValue<transport::VerbsUuid>(),
       .identity = VerbsIdentity(identity),
       .max_send_bytes = contract::kHeaderBytes + contract::kMaxBodyBytes},
      timeout_ms);
}

}  // namespace tp2::client
