// One rank's operations captured once and replayed: the capture is checked (stream of the right
// card, nodes present, no programmatic edge), instantiated and uploaded before its first launch.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tp2::coll {

class CapturedGraph {
 public:
  // Runs `body`, which enqueues on `stream`, under capture. Errors: kFailedPrecondition for a
  // stream of another card or an empty capture, what `body` returns, kAborted.
  static absl::StatusOr<CapturedGraph> Capture(int ordinal, cudaStream_t stream,
                                               const std::function<absl::Status()>& body);
  // Several streams in one capture phase, for a library that enqueues on all of them at once.
  static absl::StatusOr<std::vector<CapturedGraph>> CaptureAll(
      const std::vector<int>& ordinals, const std::vector<cudaStream_t>& streams,
      const std::function<absl::Status()>& body);
  CapturedGraph() = default;
  ~CapturedGraph();
  CapturedGraph(CapturedGraph&& other) noexcept
      : exec_(std::exchange(other.exec_, nullptr)), node_count_(other.node_count_) {}
  CapturedGraph& operator=(CapturedGraph&& other) noexcept {
    std::swap(exec_, other.exec_);
    std::swap(node_count_, other.node_count_);
    return *this;
  }

  absl::Status Launch(cudaStream_t stream) const;
  size_t node_count() const { return node_count_; }

 private:
  static absl::StatusOr<CapturedGraph> Instantiate(cudaGraph_t graph, cudaStream_t stream);

  cudaGraphExec_t exec_ = nullptr;
  size_t node_count_ = 0;
};

}  // namespace tp2::coll
