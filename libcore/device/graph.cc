#include "libcore/device/graph.h"

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/device/capture_guard.h"
#include "libcore/device/cuda_status.h"

namespace tp2::device {
namespace {

using OwnedGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>,
                                   decltype([](cudaGraph_t graph) { cudaGraphDestroy(graph); })>;

absl::Status BrokenRule(const std::string& expected, const std::string& got) {
  return MakeError(absl::StatusCode::kInternal,
                   {.what = "graph capture", .expected = expected, .got = got});
}

absl::Status CheckStream(const Stream& stream, int ordinal) {
  unsigned int flags = 0;
  int current = -1, owner = -1;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaStreamGetFlags(stream.get(), &flags)));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaStreamGetDevice(stream.get(), &owner)));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaGetDevice(&current)));
  if (stream.get() == nullptr || flags != cudaStreamDefault) {
    return BrokenRule("an owned, blocking stream", absl::StrCat("one with flags ", flags));
  }
  if (owner == ordinal && current == ordinal) return absl::OkStatus();
  return BrokenRule(absl::StrCat("device ", ordinal),
                    absl::StrCat("a stream of device ", owner, ", device ", current, " current"));
}

absl::StatusOr<GraphNodes> CountNodes(cudaGraph_t graph) {
  size_t count = 0;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaGraphGetNodes(graph, nullptr, &count)));
  if (count == 0) return BrokenRule("at least one node", "none");
  std::vector<cudaGraphNode_t> nodes(count);
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count)));
  GraphNodes found;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaGraphNodeGetType(node, &type)));
    switch (type) {
      case cudaGraphNodeTypeKernel:
        ++found.kernels;
        break;
      case cudaGraphNodeTypeMemcpy:
        ++found.copies;
        break;
      case cudaGraphNodeTypeMemset:
        ++found.fills;
        break;
      case cudaGraphNodeTypeEventRecord:
      case cudaGraphNodeTypeWaitEvent:
        ++found.events;
        break;
      default:
        return BrokenRule("kernels, copies, fills and events",
                          absl::StrCat("a node of type ", static_cast<int>(type)));
    }
  }
  return found;
}

}  // namespace

absl::StatusOr<Graph> Graph::Capture(const Stream& stream, int ordinal,
                                     absl::FunctionRef<void()> body) {
  TP2_RETURN_IF_ERROR(CheckStream(stream, ordinal));
  TP2_RETURN_IF_ERROR(
      TP2_CUDA(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal)));
  {
    const CaptureGuard guard;
    body();
  }
  cudaGraph_t captured = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream.get(), &captured);
  const OwnedGraph owned(captured);
  TP2_RETURN_IF_ERROR(ToStatus(error, "cudaStreamEndCapture"));
  Graph graph;
  TP2_ASSIGN_OR_RETURN(graph.nodes_, CountNodes(captured));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaGraphInstantiate(&graph.executable_, captured, 0)));
  return graph;
}

Graph::~Graph() {
  if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
}

absl::Status Graph::Upload(const Stream& stream) const {
  return TP2_CUDA(cudaGraphUpload(executable_, stream.get()));
}

absl::Status Graph::Launch(const Stream& stream) const {
  return TP2_CUDA(cudaGraphLaunch(executable_, stream.get()));
}

}  // namespace tp2::device
