// Stands in for the RDMA transport in builds without libibverbs and librdmacm.
#include "libcore/base/error.h"
#include "libcore/transport/verbs.h"

namespace tp2::transport {
namespace {

absl::Status NotBuilt() {
  return MakeError(absl::StatusCode::kUnimplemented,
                   {.what = "RDMA",
                    .expected = "a build with libibverbs and librdmacm",
                    .got = "one without them",
                    .next = "use TCP, or install libibverbs-dev and librdmacm-dev and configure"});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> VerbsListen(const TcpAddress& address,
                                                      const FrameRule& rule,
                                                      const VerbsOptions& options) {
  return NotBuilt();
}

absl::StatusOr<std::unique_ptr<Connection>> VerbsConnect(const TcpAddress& address,
                                                         const FrameRule& rule,
                                                         const VerbsOptions& options,
                                                         int64_t timeout_ms) {
  return NotBuilt();
}

}  // namespace tp2::transport
