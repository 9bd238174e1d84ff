// Two ends in one process: frames are copied once, from the sender's bytes into a buffer of the
// receiver. For tests and for a worker that lives inside its client.
#pragma once

#include <memory>
#include <utility>

#include "libcore/transport/transport.h"

namespace tp2::transport {

// Each end has its own rule for what it receives.
std::pair<std::unique_ptr<Connection>, std::unique_ptr<Connection>> MakeInprocPair(
    const FrameRule& first, const FrameRule& second);

}  // namespace tp2::transport
