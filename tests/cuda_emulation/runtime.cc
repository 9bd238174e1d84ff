// Memory, streams, events and graphs. A stream does its work when it is enqueued; while it is
// captured, the work is kept in the order of the calls, which is an order that all its edges allow.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <vector>

struct CUgraphNode_st {
  cudaGraphNodeType type;
  std::function<void()> work;
};
struct CUgraph_st {
  std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
  std::set<cudaStream_t> streams;  // being captured into it
};
struct CUgraphExec_st {
  std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
};
struct CUstream_st {
  unsigned flags = cudaStreamDefault;
  cudaGraph_t graph = nullptr;  // while captured
};
struct CUevent_st {
  cudaGraph_t graph = nullptr;  // recorded in a capture
  std::chrono::steady_clock::time_point time;
};

namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kTotalBytes = size_t{4} << 30;

constexpr size_t kPlainSharedBytes = 48 << 10;  // of a kernel that asked for no more

size_t used_bytes = 0;
std::map<const void*, size_t> shared_limits;
std::map<void*, size_t> allocations;

bool IsCapturing(cudaStream_t stream) {
  return stream != nullptr && stream != cudaStreamLegacy && stream->graph != nullptr;
}

}  // namespace

namespace tp2::cuda_emulation {

void AllowSharedBytes(const void* kernel, size_t bytes) { shared_limits[kernel] = bytes; }

void CheckSharedBytes(const void* kernel, size_t bytes) {
  const auto found = shared_limits.find(kernel);
  const size_t limit = found == shared_limits.end() ? kPlainSharedBytes : found->second;
  if (bytes <= limit) return;
  std::fprintf(stderr, "a kernel launched with %zu bytes of shared memory may have %zu\n", bytes,
               limit);
  std::abort();
}

void Enqueue(cudaStream_t stream, cudaGraphNodeType type, std::function<void()> work) {
  if (!IsCapturing(stream)) return work();
  stream->graph->nodes.push_back(
      std::make_shared<CUgraphNode_st>(CUgraphNode_st{type, std::move(work)}));
}

}  // namespace tp2::cuda_emulation

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error of the emulation";
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return cudaErrorInvalidDevice;
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "the CPU as a card");
  properties->major = 9;
  properties->multiProcessorCount = 132;  // grids as on an H200
  properties->totalGlobalMem = kTotalBytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = ::operator new (bytes, std::align_val_t{kAlignment}, std::nothrow);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  used_bytes += bytes;
  allocations[*memory] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  const auto found = allocations.find(memory);
  if (found == allocations.end()) return memory == nullptr ? cudaSuccess : cudaErrorInvalidValue;
  used_bytes -= found->second;
  allocations.erase(found);
  ::operator delete (memory, std::align_val_t{kAlignment});
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = kTotalBytes;
  *free_bytes = kTotalBytes - used_bytes;
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (bytes > 0) std::memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t row_bytes, size_t rows, cudaMemcpyKind) {
  for (size_t row = 0; row < rows; ++row) {
    std::memcpy(static_cast<char*>(to) + row * to_pitch,
                static_cast<const char*>(from) + row * from_pitch, row_bytes);
  }
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  *stream = new CUstream_st{flags};
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  *flags = stream->flags;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  tp2::cuda_emulation::Enqueue(stream, cudaGraphNodeTypeMemcpy,
                               [=] { (void)cudaMemcpy(to, from, bytes, kind); });
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->graph = IsCapturing(stream) ? stream->graph : nullptr;
  event->time = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  *ms = std::chrono::duration<float, std::milli>(to->time - from->time).count();
  return cudaSuccess;
}
// Joins the capture that the event was recorded in; work outside of captures is done already.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->graph == nullptr) return cudaSuccess;
  stream->graph = event->graph;
  event->graph->streams.insert(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->graph = new CUgraph_st;
  stream->graph->streams.insert(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!IsCapturing(stream)) return cudaErrorStreamCaptureUnmatched;
  *graph = stream->graph;
  for (const cudaStream_t member : (*graph)->streams) member->graph = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  *count = graph->nodes.size();
  if (nodes == nullptr) return cudaSuccess;
  for (const auto& node : graph->nodes) *nodes++ = node.get();
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = node->type;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned) {
  *executable = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  for (const auto& node : executable->nodes) node->work();
  return cudaSuccess;
}
