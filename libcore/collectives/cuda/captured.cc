#include "libcore/collectives/cuda/captured.h"

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/device_guard.h"

namespace tp2::coll {
namespace {

absl::Status Refuse(const std::string& expected, const std::string& got) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {.what = "graph capture", .expected = expected, .got = got});
}

absl::Status CheckStream(int ordinal, cudaStream_t stream) {
  int owner = -1;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaStreamGetDevice(stream, &owner)));
  if (owner == ordinal) return absl::OkStatus();
  return Refuse(absl::StrCat("a stream of card ", ordinal),
                absl::StrCat("one of card ", owner, ": its replays would do nothing"));
}

// A kernel behind a programmatic edge starts before the one in front has ended, and a collective's
// reuse of its buffers rests on that end.
absl::Status CheckEdges(cudaGraph_t graph) {
  size_t count = 0;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count)));
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> edges(count);
  if (count == 0) return absl::OkStatus();
  TP2_RETURN_IF_ERROR(
      TP2_CUDA(cudaGraphGetEdges(graph, from.data(), to.data(), edges.data(), &count)));
  for (const cudaGraphEdgeData& edge : edges) {
    if (edge.type == cudaGraphDependencyTypeProgrammatic) {
      return Refuse("full dependencies", "a programmatic edge");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CapturedGraph> CapturedGraph::Instantiate(cudaGraph_t graph, cudaStream_t stream) {
  CapturedGraph captured;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaGraphGetNodes(graph, nullptr, &captured.node_count_)));
  if (captured.node_count_ == 0) return Refuse("at least one node", "none");
  TP2_RETURN_IF_ERROR(CheckEdges(graph));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaGraphInstantiate(&captured.exec_, graph, 0)));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaGraphUpload(captured.exec_, stream)));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaStreamSynchronize(stream)));
  return captured;
}

absl::StatusOr<CapturedGraph> CapturedGraph::Capture(int ordinal, cudaStream_t stream,
                                                     const std::function<absl::Status()>& body) {
  TP2_ASSIGN_OR_RETURN(std::vector<CapturedGraph> graphs, CaptureAll({ordinal}, {stream}, body));
  return std::move(graphs.front());
}

absl::StatusOr<std::vector<CapturedGraph>> CapturedGraph::CaptureAll(
    const std::vector<int>& ordinals, const std::vector<cudaStream_t>& streams,
    const std::function<absl::Status()>& body) {
  absl::Status status;
  size_t begun = 0;
  for (; begun < streams.size() && status.ok(); ++begun) {
    const device::DeviceGuard guard(ordinals[begun]);
    status = CheckStream(ordinals[begun], streams[begun]);
    if (!status.ok()) break;
    status = TP2_CUDA(cudaStreamBeginCapture(streams[begun], cudaStreamCaptureModeThreadLocal));
  }
  if (status.ok()) {
    const device::DeviceGuard guard(ordinals.front());
    status = body();
  }
  std::vector<cudaGraph_t> graphs(begun, nullptr);
  for (size_t i = 0; i < begun; ++i) {
    const absl::Status ended = TP2_CUDA(cudaStreamEndCapture(streams[i], &graphs[i]));
    if (status.ok()) status = ended;
  }
  std::vector<CapturedGraph> captured;
  for (size_t i = 0; i < begun; ++i) {
    if (graphs[i] == nullptr) continue;
    const device::DeviceGuard guard(ordinals[i]);
    if (status.ok()) {
      absl::StatusOr<CapturedGraph> graph = Instantiate(graphs[i], streams[i]);
      status = graph.status();
      if (graph.ok()) captured.push_back(*std::move(graph));
    }
    cudaGraphDestroy(graphs[i]);
  }
  TP2_RETURN_IF_ERROR(status);
  return captured;
}

CapturedGraph::~CapturedGraph() {
  if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
}

absl::Status CapturedGraph::Launch(cudaStream_t stream) const {
  return TP2_CUDA(cudaGraphLaunch(exec_, stream));
}

}  // namespace tp2::coll
