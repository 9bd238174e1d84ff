// The op set on one CUDA card: equal bits to CpuOps<Bf16>, operation by operation. All ranks that
// it serves live on one card and share one owning stream, so what is enqueued runs in program order
// and a graph key names one graph for all of them. Thread-compatible; create it, and call it, on
// one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/device/arena.h"
#include "libcore/device/buffer.h"
#include "libcore/device/event.h"
#include "libcore/device/graph.h"
#include "libcore/device/select.h"
#include "libcore/device/stream.h"
#include "libcore/math/rope.h"
#include "libcore/ops/cuda/device_types.h"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/weights_placer.h"
#include "libcore/ops/first_error.h"
#include "libcore/ops/op_args.h"
#include "libcore/ops/op_set.h"
#include "libcore/tuning/kernel_choices.h"

namespace tp2 {

class CudaOps {
 public:
  using Stored = Bf16;
  template <class T>
  using Buffer = device::Buffer<T>;
  template <class T>
  using HostBuffer = device::PinnedBuffer<T>;

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
    return Kept(Buffer<T>::Create(count));
  }
  template <class T>
  HostBuffer<T> AllocateHost(int rank, int64_t count) {
    return Kept(HostBuffer<T>::Create(count));
  }

  template <class T>
  void Upload(int rank, std::span<const T> host, T* out) {
    Copy(host.data(), host.size_bytes(), out);
  }
  template <class T>
  void ReadBack(int rank, const T* in, std::span<T> host) {
    Copy(in, host.size_bytes(), host.data());
  }
  template <class T>
  void Download(int rank, const T* in, std::span<T> host) {
    Copy(in, host.size_bytes(), host.data());
    Wait(rank);
  }
  void Wait(int rank);

  // Captures `body` as the graph of `key` and uploads it; a failure is noted in setup_status.
  // Without graphs Record does nothing and Run calls the body.
  template <class Body>
  void Record(const GraphKey& key, Body&& body) {
    if (uses_graphs_ && setup_status_.ok()) setup_status_ = Capture(key, body);
  }
  template <class Body>
  void Run(const GraphKey& key, Body&& body) {
    if (!uses_graphs_) return body();
    Replay(key);
  }
  int PaddedRows(int rows) const { return InsertBucketOf(rows); }
  void set_uses_graphs(bool uses_graphs) { uses_graphs_ = uses_graphs; }
  // The all-reduce takes the rank's own half twice: one rank of two, alone, for its time and
  // memory.
  void set_stands_in(bool stands_in) { stands_in_ = stands_in; }
  // Shapes of the launches that follow. Bits are the same with every table, and without one (null).
  void set_kernels(std::shared_ptr<tuning::KernelChoices> kernels) {
    kernels_ = std::move(kernels);
  }
  tuning::TableUse kernel_table_use() const {
    return kernels_ != nullptr ? kernels_->use() : tuning::TableUse();
  }
  // Products of one input share a launch (the default), or each has its own: time only.
  void set_joins_products(bool joins_products) { joins_products_ = joins_products; }
  const std::map<GraphKey, device::Graph>& graphs() const { return graphs_; }
  std::vector<GraphSize> GraphSizes() const;

  void Widen(int rank, const WidenArgs& args);
  void Linear(int rank, std::span<const LinearOpArgs> products);
  void RmsNorm(int rank, const RmsNormArgs& args);
  void KvFinish(int rank, const KvFinishArgs<Bf16>& args);
  void QueryFinish(int rank, const QueryFinishArgs& args);
  void Embed(int rank, const EmbedArgs<Bf16>& args);
  void Mix(int rank, const MixArgs<Bf16>& args);
  void HeadMix(int rank, const HeadMixArgs<Bf16>& args);
  void Collapse(int rank, const CollapseArgs<Bf16>& args);
  void Update(int rank, const UpdateArgs<Bf16>& args);
  void Enter(int rank, const EnterArgs<Bf16>& args);
  void Latents(int rank, const LatentArgs<Bf16>& args);
  void Attention(int rank, const AttentionArgs<Bf16>& args);
  void Attend(int rank, const AttendArgs<Bf16>& args);
  void GroupedOutput(int rank, const GroupedOutputArgs& args);
  void Router(int rank, const RouterArgs& args);
  void Experts(int rank, const ExpertsArgs& args);
  void Markov(int rank, const MarkovArgs& args);
  void Confidence(int rank, const ConfidenceArgs& args);
  void AllReduce(std::span<const AllReduceArgs<Bf16>> ranks);
  void Exchange(std::span<const ExchangeArgs> ranks);

  void Mark(StepMark mark);
  int64_t NsBetween(int rank, StepMark from, StepMark to);
  // One stream serves all ranks: they share every CUDA error, and any of those is final.
  void CloseStep() {}
  FirstError& error(int rank);
  void Recover() {}
  // Makes the card current for the calling thread.
  void UseThread();
  bool is_healthy() const { return fault_.empty(); }
  // Where operations go: to the owning stream, or into the graph that is being captured. Whoever
  // asks may enqueue there, so the next kernel waits for everything before it.
  cudaStream_t stream() {
    must_wait_ = true;
    return main_stream();
  }
  // First failure of Place, Allocate, AllocateHost or Record.
  const absl::Status& setup_status() const { return setup_status_; }

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

  template <class B>
  B Kept(absl::StatusOr<B> buffer) {
    if (buffer.ok()) return *std::move(buffer);
    if (setup_status_.ok()) setup_status_ = buffer.status();
    return B();
  }

  // The first failure of a CUDA call is final.
  void Check(const absl::Status& status);
  void CheckLaunch(const char* op);
  void Copy(const void* in, size_t bytes, void* out);
  absl::Status Capture(const GraphKey& key, absl::FunctionRef<void()> body);
  void Replay(const GraphKey& key);
  // A product and the row stride of its y.
  struct Product {
    LinearOpArgs args;
    int64_t y_stride = 0;
  };
  void RunProducts(std::span<const Product> products);
  // Products of equal k and rows, kFewJobs of them at most, in one launch per kind of matrix.
  void RunTogether(std::span<const Product> products);
  void RunFew(const cuda::LinearJobs& jobs, std::span<const exl3::MatrixView* const> matrices,
              const cuda::LinearWorkspace& work, bool is_beside);
  void Multiply(const cuda::LinearJobs& jobs, std::span<const exl3::MatrixView* const> matrices,
                const cuda::LinearWorkspace& work, const cuda::Queue& queue);
  void EnqueueMix(const MixArgs<Bf16>& args, const cuda::Queue& queue);
  cuda::AttentionLaunch AttentionOf(const AttentionArgs<Bf16>& args) const;
  cuda::KvFinishLaunch KvLaunchOf(const KvFinishArgs<Bf16>& args) const;
  const ExpertTable& TableOf(const RankStage& stage) const;
  cuda::RouteLaunch RouteOf(const ExpertsArgs& args);
  void RunRouted(const ExpertTable& table, const cuda::LinearJobs& jobs);
  void RunShared(const cuda::RouteLaunch& route, const ExpertsArgs& args);
  // Parts of K for the products of one width among `block_count` blocks of outputs in one launch.
  int SplitsOf(const tuning::ProductKey& key, int block_count) const;

  // Work beside the main stream: Fork lets it start behind what is enqueued so far, Join makes what
  // is enqueued later wait for all of it.
  struct Branch {
    device::Stream stream, capture;
    device::Event end;
    bool is_open = false;

    absl::Status Create();
  };
  void Fork(Branch* branch);
  void Join();
  // The mix that Enter has left, if there is one: on a branch that is open, or now.
  void MixOn(const Branch& branch);
  void Settle();
  cudaStream_t main_stream() const { return (is_recording_ ? capture_stream_ : stream_).get(); }
  // For the next kernel. Plain behind anything that is not a kernel of this op set.
  cuda::Queue queue() { return {main_stream(), overlaps_ && !std::exchange(must_wait_, false)}; }
  // For a kernel whose blocks are few and heavy: started early, they would crowd the
  // multiprocessors that the kernel in front has left.
  cuda::Queue PlainQueue() {
    must_wait_ = true;
    return queue();
  }
  cuda::Queue QueueOf(const Branch& branch) const {
    return {(is_recording_ ? branch.capture : branch.stream).get(), false};
  }
  int item_capacity() const;
  int group_capacity() const;

  DrafterConfig config_;
  int ordinal_ = 0;
  device::Stream stream_, capture_stream_;
  Branch shared_branch_, mix_branch_;  // the shared expert and the confidences; the mixes
  device::Event forked_;
  bool is_recording_ = false;
  bool can_overlap_ = false;              // the card can start a kernel before its predecessor ends
  bool overlaps_ = false;                 // kernels may: while a graph is captured
  bool must_wait_ = true;                 // the next one may not
  std::optional<MixArgs<Bf16>> mix_due_;  // of Enter
  const RankStage* routed_ = nullptr;     // Router has grouped the rows for this one's Experts
  bool is_reversed_ = false;  // each Markov position begins where the last one's weights are cached
  std::array<device::Event, kStepMarks> marks_;
  device::Arena arena_;
  absl::Status setup_status_;
  int multiprocessors_ = 0;
  float score_scale_ = 0;  // 1 / sqrt(head_dim)
  std::vector<FirstError> errors_;
  std::string fault_;  // of the first CUDA call that failed; latches point to it
  std::map<const uint16_t*, ExpertTable> expert_tables_;  // by the first expert's w1
  bool uses_graphs_ = false;
  bool stands_in_ = false;
  bool joins_products_ = true;
  std::shared_ptr<tuning::KernelChoices> kernels_;  // null: safe defaults

  Buffer<CosSin> rope_;          // [max_positions + kBlockRows, rope_dims / 2]
  HostBuffer<int> error_words_;  // [rank_count], written by kernels
  // Rows between transform and product, and the sums of split products.
  struct Workspace {
    Buffer<uint32_t> quanta;
    Buffer<float> halves;
    Buffer<int64_t> row_sums;
    Buffer<float> scales;
    Buffer<unsigned long long> partial_sums;
    Buffer<unsigned int> arrivals;

    struct Counts {
      int64_t quanta, halves, items, sums, arrivals;
    };
    absl::Status Allocate(const Counts& counts);
    cuda::LinearWorkspace view();
  };
  Workspace main_, side_;
  Buffer<unsigned int> markov_arrivals_, router_arrivals_;
  Buffer<float> stream_dots_;
  Buffer<TopTwo> block_best_;
  Buffer<float> gate_, up_, parts_;
  Buffer<cuda::LinearJob> up_jobs_, down_jobs_;
  Buffer<int> job_counts_;  // of both lists
  Buffer<int32_t> item_rows_, row_items_;
  Buffer<float> item_weights_;
  Buffer<float> ones_;                        // weights of the shared expert's items
  std::map<GraphKey, device::Graph> graphs_;  // last: graphs go before what they point to
};

}  // namespace tp2
