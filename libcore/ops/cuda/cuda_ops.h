// The op set on one CUDA card: equal bits to CpuOps<Bf16>, operation by operation. All ranks that
// it serves live on one card and share one owning stream, so what is enqueued runs in program
// order. Thread-compatible; create it, and call it, on one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/device/arena.h"
#include "libcore/device/buffer.h"
#include "libcore/device/event.h"
#include "libcore/device/select.h"
#include "libcore/device/stream.h"
#include "libcore/math/rope.h"
#include "libcore/ops/cuda/device_types.h"
#include "libcore/ops/cuda/weights_placer.h"
#include "libcore/ops/first_error.h"
#include "libcore/ops/op_args.h"
#include "libcore/ops/op_set.h"

namespace tp2 {

class CudaOps {
 public:
  using Stored = Bf16;
  template <class T>
  using Buffer = device::Buffer<T>;

  // Tables and workspaces for `max_positions` positions plus one block, on `device`, which becomes
  // current. Errors: kResourceExhausted, kAborted.
  static absl::StatusOr<std::unique_ptr<CudaOps>> Create(const DrafterConfig& config,
                                                         int rank_count, int64_t max_positions,
                                                         const device::DeviceInfo& device);

  // Copies a rank's weights to the card; later arguments point into the copy. A failure is noted in
  // setup_status.
  RankWeights Place(int rank, const RankWeights& host);

  // Zero-filled. A failure is noted in setup_status and gives an empty buffer.
  template <class T>
  Buffer<T> Allocate(int rank, int64_t count) {
    absl::StatusOr<Buffer<T>> buffer = Buffer<T>::Create(count);
    if (buffer.ok()) return *std::move(buffer);
    if (setup_status_.ok()) setup_status_ = buffer.status();
    return Buffer<T>();
  }

  template <class T>
  void Upload(int rank, std::span<const T> host, T* out) {
    CopyIn(rank, host.data(), host.size_bytes(), out);
  }
  template <class T>
  void Download(int rank, const T* in, std::span<T> host) {
    CopyOut(rank, in, host.size_bytes(), host.data());
  }

  // Runs `body`, which enqueues the same operations at the same addresses whenever `key` is the
  // same: captured as a graph the first time, replayed after that.
  template <class Body>
  void Repeat(int key, Body&& body) {
    if (!uses_graphs_) return body();
    if (const auto graph = graphs_.find(key); graph != graphs_.end()) {
      Check(0, cudaGraphLaunch(graph->second, stream_.get()));
      return;
    }
    if (!BeginCapture()) return body();
    body();
    EndCapture(key);
  }
  void set_uses_graphs(bool uses_graphs) { uses_graphs_ = uses_graphs; }
  // The all-reduce takes the rank's own half twice: one rank of two, alone, for its time and
  // memory.
  void set_stands_in(bool stands_in) { stands_in_ = stands_in; }
  int graph_count() const { return static_cast<int>(graphs_.size()); }

  void Widen(int rank, const WidenArgs& args);
  void Linear(int rank, const LinearOpArgs& args);
  void RmsNorm(int rank, const RmsNormArgs& args);
  void KvFinish(int rank, const KvFinishArgs<Bf16>& args);
  void QueryFinish(int rank, const QueryFinishArgs& args);
  void Embed(int rank, const EmbedArgs<Bf16>& args);
  void Mix(int rank, const MixArgs<Bf16>& args);
  void HeadMix(int rank, const HeadMixArgs<Bf16>& args);
  void Collapse(int rank, const CollapseArgs<Bf16>& args);
  void Update(int rank, const UpdateArgs<Bf16>& args);
  void Attention(int rank, const AttentionArgs<Bf16>& args);
  void GroupedOutput(int rank, const GroupedOutputArgs& args);
  void Router(int rank, const RouterArgs& args);
  void Experts(int rank, const ExpertsArgs& args);
  void Markov(int rank, const MarkovArgs& args);
  void Confidence(int rank, const ConfidenceArgs& args);
  void AllReduce(std::span<const AllReduceArgs<Bf16>> ranks);
  void Exchange(std::span<const ExchangeArgs> ranks);

  void Mark(StepMark mark);
  int64_t NsBetween(StepMark from, StepMark to);
  // One stream serves all ranks: they share their errors, and a device fault is final.
  void CloseStep() {}
  // Waits for the rank's work and reads its error word.
  FirstError& error(int rank);
  void Recover() {}
  bool is_healthy() const { return is_healthy_; }
  // First failure of Place or Allocate.
  const absl::Status& setup_status() const { return setup_status_; }
  cudaStream_t stream() const { return stream_.get(); }

  ~CudaOps();
  CudaOps(const CudaOps&) = delete;
  CudaOps& operator=(const CudaOps&) = delete;

 private:
  // What the experts' kernels need beside the arguments of the operation.
  struct ExpertTable {
    const cuda::DeviceExpert* experts = nullptr;
    std::set<int> bits;  // trellis widths among the routed experts' mul1 matrices
    bool has_half = false;
  };

  CudaOps(const DrafterConfig& config, int rank_count) : config_(config), errors_(rank_count) {}

  absl::Status Initialize(int64_t max_positions);
  absl::Status BuildRopeTable(int64_t max_positions);
  absl::Status BuildExpertBuffers();
  absl::Status PlaceExperts(const RankStage& stage);

  void Check(int rank, cudaError_t error);
  void CopyIn(int rank, const void* host, size_t bytes, void* out);
  void CopyOut(int rank, const void* in, size_t bytes, void* host);
  bool BeginCapture();
  void EndCapture(int key);
  void RunProduct(const exl3::MatrixView& matrix, const float* x, int64_t x_stride, int rows,
                  float* y, int64_t y_stride);
  void RunExpertProducts(const ExpertTable& table, const cuda::LinearJobs& jobs,
                         std::span<const exl3::MatrixView* const> shared);
  cuda::LinearWorkspace workspace();
  // Parts of K for `job_count` products of k inputs and n outputs in one launch.
  int SplitsOf(int k, int n, int job_count) const;
  int item_capacity() const;
  int group_capacity() const;
  int job_capacity() const;

  DrafterConfig config_;
  device::Stream stream_;
  std::array<device::Event, kStepMarks> marks_;
  device::Arena arena_;
  absl::Status setup_status_;
  int multiprocessors_ = 0;
  float score_scale_ = 0;  // 1 / sqrt(head_dim)
  std::vector<FirstError> errors_;
  std::map<const uint16_t*, ExpertTable> expert_tables_;  // by the first expert's w1
  bool uses_graphs_ = false;
  bool stands_in_ = false;
  bool is_healthy_ = true;  // no CUDA call has failed
  std::map<int, cudaGraphExec_t> graphs_;

  Buffer<CosSin> rope_;      // [max_positions + kBlockRows, rope_dims / 2]
  Buffer<int> error_words_;  // [rank_count]
  Buffer<uint32_t> quanta_;
  Buffer<float> halves_;
  Buffer<int64_t> row_sums_;
  Buffer<float> scales_;
  Buffer<unsigned long long> partial_sums_;
  Buffer<unsigned int> arrivals_;
  Buffer<float> stream_dots_;
  Buffer<TopTwo> block_best_;
  Buffer<float> gate_, up_, parts_;
  Buffer<cuda::LinearJob> up_jobs_, down_jobs_;
  Buffer<int32_t> item_rows_, row_items_;
  Buffer<float> item_weights_;
};

}  // namespace tp2
