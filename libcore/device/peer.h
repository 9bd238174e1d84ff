// Peer access between two cards, and what memory may serve it. Access is enabled once per direction
// and never toggled. Only plain cudaMalloc memory is accepted: peer access covers neither mapped
// (VMM, expandable segments) nor pool memory.
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace tp2::device {

// Lets kernels of `ordinal` use memory of `peer`. The same card: nothing to do. A pending CUDA
// error is reported, never consumed; the benign "already enabled" is consumed exactly once. Errors:
// kUnavailable without a peer path, kAborted.
absl::Status EnablePeerAccess(int ordinal, int peer);

// Whether [data, data + bytes) is one plain cudaMalloc allocation's start on `ordinal`. Errors:
// kFailedPrecondition with the kind of memory found.
absl::Status CheckPeerMemory(const void* data, size_t bytes, int ordinal);

}  // namespace tp2::device
