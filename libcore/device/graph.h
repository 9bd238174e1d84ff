// One captured CUDA graph. What a capture has to hold to, each rule because a graph that is
// silently wrong replays without an error:
//  * the stream is passed in, never looked up, and belongs to the current device; a capture under
//    another device can end as an empty graph whose replays leave the results of the last run;
//  * the stream is a blocking one (Stream::Kind::kCapture), so that a launch on the legacy stream
//    by mistake breaks the capture; beside a non-blocking stream it would run once, now, and be
//    missing from every replay. Replays go to any stream of the device;
//  * thread-local mode: an allocation or a wait of this thread breaks the capture, which relaxed
//    mode would let pass, while other threads stay free to use their devices, which global mode
//    would not let them. CaptureGuard refuses the same calls with a clear message;
//  * afterwards: there are nodes, and all of them are kernels, copies, fills or events.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/device/stream.h"

namespace tp2::device {

// Nodes of a graph by kind.
struct GraphNodes {
  int kernels = 0;
  int copies = 0;
  int fills = 0;
  int events = 0;
  int total() const { return kernels + copies + fills + events; }
};

// Owned and move-only.
class Graph {
 public:
  Graph() = default;
  // Records what `body` enqueues on `stream`, a kCapture one of device `ordinal`, which is current;
  // nothing runs. Errors: kInternal when a rule above does not hold, kAborted for errors
  // of CUDA.
  static absl::StatusOr<Graph> Capture(const Stream& stream, int ordinal,
                                       absl::FunctionRef<void()> body);
  ~Graph();
  Graph(Graph&& other) noexcept
      : executable_(std::exchange(other.executable_, nullptr)), nodes_(other.nodes_) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(executable_, other.executable_);
    std::swap(nodes_, other.nodes_);
    return *this;
  }

  // Puts on the device what a replay needs, so that the first one does not. Enqueued on `stream`.
  absl::Status Upload(const Stream& stream) const;
  absl::Status Launch(const Stream& stream) const;
  const GraphNodes& nodes() const { return nodes_; }

 private:
  cudaGraphExec_t executable_ = nullptr;
  GraphNodes nodes_;
};

}  // namespace tp2::device
