// The CUDA op set of a pair: each rank has its own card, op set and graphs, and the ranks meet in
// the collectives of libcore/collectives. One controller drives both: it enqueues a draft on rank 1
// first and on rank 0 last, because rank 0's stream ends with the results, and an insert, which has
// no collective, on rank 0 first.
//
// A graph key is captured once per rank, by running its body with only that rank active: nothing
// runs during a capture, so that a collective needs no partner there.
//
// A draft ends with the closing exchange: a rank that ended it without an error knows that no rank
// refused anything in it. Each rank then leaves its status in host memory; a draft whose status did
// not arrive has failed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/collectives/cuda/cuda_pair.h"
#include "libcore/device/buffer.h"
#include "libcore/device/device_guard.h"
#include "libcore/device/select.h"
#include "libcore/ops/cuda/cuda_ops.h"

namespace tp2 {

// Thread-compatible, except Cancel: one controller.
class CudaPairOps {
 public:
  using Stored = Bf16;
  template <class T>
  using Buffer = CudaOps::Buffer<T>;
  template <class T>
  using HostBuffer = CudaOps::HostBuffer<T>;

  struct Options {
    std::vector<device::DeviceInfo> cards;  // by rank, two; one card twice only for tests
    coll::ProtocolKind protocol = coll::ProtocolKind::kLine;
    int64_t timeout_ms = 2000;  // longest wait of a collective
    uint32_t max_epoch = coll::kMaxEpoch;
    std::shared_ptr<tuning::KernelChoices> kernels = nullptr;  // of both ranks
  };

  // Errors: CudaOps::Create's and coll::CudaPair::Create's.
  static absl::StatusOr<std::unique_ptr<CudaPairOps>> Create(const DrafterConfig& config,
                                                             int64_t max_positions,
                                                             const Options& options);
  // Waits, bounded: the pair still looks at streams that the op sets own.
  ~CudaPairOps();
  CudaPairOps(const CudaPairOps&) = delete;
  CudaPairOps& operator=(const CudaPairOps&) = delete;

  RankWeights Place(int rank, const RankWeights& host) {
    const device::DeviceGuard guard(ordinal(rank));
    return ops_[rank]->Place(rank, host);
  }
  template <class T>
  Buffer<T> Allocate(int rank, int64_t count) {
    const device::DeviceGuard guard(ordinal(rank));
    return ops_[rank]->Allocate<T>(rank, count);
  }
  template <class T>
  HostBuffer<T> AllocateHost(int rank, int64_t count) {
    const device::DeviceGuard guard(ordinal(rank));
    return ops_[rank]->AllocateHost<T>(rank, count);
  }
  template <class T>
  void Upload(int rank, std::span<const T> host, T* out) {
    if (!IsActive(rank)) return;
    uploads_[rank] = {std::as_bytes(host), reinterpret_cast<std::byte*>(out)};
    // Rank 1's waits for its first operation, so that rank 0's is not held up.
    if (rank == 0) SendUpload(rank);
  }
  template <class T>
  void ReadBack(int rank, const T* in, std::span<T> host) {
    if (!IsActive(rank)) return;
    const device::DeviceGuard guard(ordinal(rank));
    ops_[rank]->ReadBack(rank, in, host);
  }
  template <class T>
  void Download(int rank, const T* in, std::span<T> host) {
    SendUpload(rank);
    const device::DeviceGuard guard(ordinal(rank));
    ops_[rank]->Download(rank, in, host);
  }
  // Of both ranks, bounded: a rank that does not become idle poisons the pair.
  void Wait(int rank);

  template <class Body>
  void Record(const GraphKey& key, Body&& body) {
    for (const int rank : {1, 0}) {
      const device::DeviceGuard guard(ordinal(rank));
      active_rank_ = rank;
      ops_[rank]->Record(key, body);
      active_rank_.reset();
    }
  }
  template <class Body>
  void Run(const GraphKey& key, Body&& body) {
    if (!uses_graphs_) return body();
    if (!BeforeReplay(key)) return;
    const bool is_draft = key.kind == GraphKey::Kind::kDraft;
    for (const int rank : {is_draft ? 1 : 0, is_draft ? 0 : 1}) Replay(rank, key);
  }
  int PaddedRows(int rows) const { return InsertBucketOf(rows); }
  void set_uses_graphs(bool uses_graphs);
  void set_joins_products(bool joins_products) {
    for (const auto& ops : ops_) ops->set_joins_products(joins_products);
  }
  tuning::TableUse kernel_table_use() const { return ops_[0]->kernel_table_use(); }
  // Of rank 0.
  std::vector<GraphSize> GraphSizes() const { return ops_[0]->GraphSizes(); }

  void Widen(int rank, const WidenArgs& args) { Forward(rank, &CudaOps::Widen, args); }
  void Linear(int rank, std::span<const LinearOpArgs> products) {
    if (!IsActive(rank)) return;
    SendUpload(rank);
    const device::DeviceGuard guard(ordinal(rank));
    ops_[rank]->Linear(rank, products);
  }
  void RmsNorm(int rank, const RmsNormArgs& args) { Forward(rank, &CudaOps::RmsNorm, args); }
  void KvFinish(int rank, const KvFinishArgs<Bf16>& args) {
    Forward(rank, &CudaOps::KvFinish, args);
  }
  void QueryFinish(int rank, const QueryFinishArgs& args) {
    Forward(rank, &CudaOps::QueryFinish, args);
  }
  void Embed(int rank, const EmbedArgs<Bf16>& args) { Forward(rank, &CudaOps::Embed, args); }
  void Mix(int rank, const MixArgs<Bf16>& args) { Forward(rank, &CudaOps::Mix, args); }
  void HeadMix(int rank, const HeadMixArgs<Bf16>& args) { Forward(rank, &CudaOps::HeadMix, args); }
  void Collapse(int rank, const CollapseArgs<Bf16>& args) {
    Forward(rank, &CudaOps::Collapse, args);
  }
  void Update(int rank, const UpdateArgs<Bf16>& args) { Forward(rank, &CudaOps::Update, args); }
  void Enter(int rank, const EnterArgs<Bf16>& args) { Forward(rank, &CudaOps::Enter, args); }
  void Latents(int rank, const LatentArgs<Bf16>& args) { Forward(rank, &CudaOps::Latents, args); }
  void Attention(int rank, const AttentionArgs<Bf16>& args) {
    Forward(rank, &CudaOps::Attention, args);
  }
  void Attend(int rank, const AttendArgs<Bf16>& args) { Forward(rank, &CudaOps::Attend, args); }
  void GroupedOutput(int rank, const GroupedOutputArgs& args) {
    Forward(rank, &CudaOps::GroupedOutput, args);
  }
  void Router(int rank, const RouterArgs& args) { Forward(rank, &CudaOps::Router, args); }
  void Experts(int rank, const ExpertsArgs& args) { Forward(rank, &CudaOps::Experts, args); }
  void Markov(int rank, const MarkovArgs& args) { Forward(rank, &CudaOps::Markov, args); }
  void Confidence(int rank, const ConfidenceArgs& args) {
    Forward(rank, &CudaOps::Confidence, args);
  }
  void AllReduce(std::span<const AllReduceArgs<Bf16>> ranks);
  void Exchange(std::span<const ExchangeArgs> ranks);

  void Mark(StepMark mark);
  int64_t NsBetween(int rank, StepMark from, StepMark to) {
    const device::DeviceGuard guard(ordinal(rank));
    return ops_[rank]->NsBetween(rank, from, to);
  }
  void CloseStep();
  FirstError& error(int rank);
  // After a failed STEP: drains both ranks, clears the states, starts the next generation. A pair
  // that cannot be reset is poisoned.
  void Recover();
  // In a gap between STEPs: the reset that the next one would begin with. Errors: kAborted, and the
  // pair is poisoned.
  absl::Status MaintainWhileIdle();
  bool is_healthy() const {
    return !pair_->is_poisoned() && ops_[0]->is_healthy() && ops_[1]->is_healthy();
  }

  // Ends a waiting collective; the STEP fails on both ranks. Any thread.
  absl::Status Cancel() { return pair_->Cancel(); }
  // For tests of failures: called before a rank's graph of a draft is launched on `stream`, under
  // the rank's card; false leaves the rank out.
  using DraftHook = std::function<bool(int rank, cudaStream_t stream)>;
  void set_draft_hook(DraftHook hook) { draft_hook_ = std::move(hook); }

  // First failure of Place, Allocate, AllocateHost or Record.
  const absl::Status& setup_status() const;
  CudaOps& rank_ops(int rank) { return *ops_[rank]; }
  const coll::CudaPair& pair() const { return *pair_; }
  // The only rank whose operations count now, while its graph is captured.
  std::optional<int> active_rank() const { return active_rank_; }

 private:
  CudaPairOps(const DrafterConfig& config, const Options& options)
      : config_(config), options_(options) {}
  absl::Status Initialize(int64_t max_positions);

  int ordinal(int rank) const { return options_.cards[rank].ordinal; }
  bool IsActive(int rank) const { return !active_rank_.has_value() || *active_rank_ == rank; }
  template <class Args>
  void Forward(int rank, void (CudaOps::*op)(int, const Args&), const Args& args) {
    if (!IsActive(rank)) return;
    SendUpload(rank);
    const device::DeviceGuard guard(ordinal(rank));
    (ops_[rank].get()->*op)(rank, args);
  }
  cudaStream_t stream(int rank) const { return ops_[rank]->stream(); }
  // False: the pair refuses, as error() will say.
  bool BeforeReplay(const GraphKey& key);
  void Replay(int rank, const GraphKey& key);
  // Makes the pair wait for the rank's stream when it drains.
  void NoteUse(int rank);
  // Enqueues the rank's upload if it has not been yet.
  void SendUpload(int rank);
  // The coming draft's status has not arrived yet.
  void ExpectOutcomes();
  void Check(int rank, const absl::Status& status);

  DrafterConfig config_;
  Options options_;
  bool uses_graphs_ = true;
  DraftHook draft_hook_;
  std::optional<int> active_rank_;
  std::unique_ptr<coll::CudaPair> pair_;
  device::PinnedBuffer<coll::Status> outcomes_;  // by rank, of the latest draft
  struct PendingUpload {
    std::span<const std::byte> host;
    std::byte* out;
  };
  std::array<std::optional<PendingUpload>, 2> uploads_;
  std::array<bool, 2> awaits_outcome_{};
  bool is_reset_due_ = false;               // epochs run low
  std::array<FirstError, 2> errors_;        // of the pair: the op sets have their own
  std::array<std::string, 2> error_texts_;  // what those point to
  std::array<std::unique_ptr<CudaOps>, 2> ops_;
};

}  // namespace tp2
