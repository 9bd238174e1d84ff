// The CPU op set of a host pair: each rank has its own ops and its own stream thread, collectives
// go through the protocol. The single controller only queues, as it does on two cards, so neither
// waiting collective can block the other's half.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "libcore/collectives/host_pair.h"
#include "libcore/collectives/host_stream.h"
#include "libcore/collectives/pair_latch.h"
#include "libcore/ops/cpu/cpu_ops.h"

namespace tp2 {

// Thread-compatible: one controller. Arguments are copied when queued; what they point to must stay
// until the rank has drained.
class HostPairOps {
 public:
  using Stored = Bf16;
  template <class T>
  using Buffer = std::vector<T>;
  template <class T>
  using HostBuffer = std::vector<T>;

  // `rank_count` is 2; `thread_count` is shared by both ranks, at least one thread each.
  HostPairOps(const DrafterConfig& config, int rank_count, int thread_count,
              const coll::LatchOptions& latch_options = {});
  ~HostPairOps();

  template <class T>
  Buffer<T> Allocate(int rank, int64_t count) {
    return Buffer<T>(static_cast<size_t>(count));
  }
  template <class T>
  HostBuffer<T> AllocateHost(int rank, int64_t count) {
    return HostBuffer<T>(static_cast<size_t>(count));
  }
  template <class T>
  void Upload(int rank, std::span<const T> host, T* out) {
    Queue(rank, [host, out] { std::copy(host.begin(), host.end(), out); });
  }
  template <class T>
  void ReadBack(int rank, const T* in, std::span<T> host) {
    Queue(rank, [in, host] { std::copy_n(in, host.size(), host.begin()); });
  }
  template <class T>
  void Download(int rank, const T* in, std::span<T> host) {
    Wait(rank);
    std::copy_n(in, host.size(), host.begin());
  }
  void Wait(int rank) { streams_[rank]->Drain(); }

  RankWeights Place(int rank, const RankWeights& host) const { return host; }

  template <class Body>
  void Record(const GraphKey& key, Body&& body) {}
  template <class Body>
  void Run(const GraphKey& key, Body&& body) {
    body();
  }
  std::vector<GraphSize> GraphSizes() const { return {}; }
  int PaddedRows(int rows) const { return rows; }

  void Widen(int rank, const WidenArgs& args) { Run(rank, &Ops::Widen, args); }
  void Linear(int rank, std::span<const LinearOpArgs> products) {
    Queue(rank, [this, rank, copies = std::vector(products.begin(), products.end())] {
      ops_[rank]->Linear(rank, copies);
    });
  }
  void RmsNorm(int rank, const RmsNormArgs& args) { Run(rank, &Ops::RmsNorm, args); }
  void KvFinish(int rank, const KvFinishArgs<Bf16>& args) { Run(rank, &Ops::KvFinish, args); }
  void QueryFinish(int rank, const QueryFinishArgs& args) { Run(rank, &Ops::QueryFinish, args); }
  void Embed(int rank, const EmbedArgs<Bf16>& args) { Run(rank, &Ops::Embed, args); }
  void Mix(int rank, const MixArgs<Bf16>& args) { Run(rank, &Ops::Mix, args); }
  void HeadMix(int rank, const HeadMixArgs<Bf16>& args) { Run(rank, &Ops::HeadMix, args); }
  void Collapse(int rank, const CollapseArgs<Bf16>& args) { Run(rank, &Ops::Collapse, args); }
  void Update(int rank, const UpdateArgs<Bf16>& args) { Run(rank, &Ops::Update, args); }
  void Enter(int rank, const EnterArgs<Bf16>& args) { Run(rank, &Ops::Enter, args); }
  void Latents(int rank, const LatentArgs<Bf16>& args) { Run(rank, &Ops::Latents, args); }
  void Attention(int rank, const AttentionArgs<Bf16>& args) { Run(rank, &Ops::Attention, args); }
  void Attend(int rank, const AttendArgs<Bf16>& args) { Run(rank, &Ops::Attend, args); }
  void GroupedOutput(int rank, const GroupedOutputArgs& args) {
    Run(rank, &Ops::GroupedOutput, args);
  }
  void Router(int rank, const RouterArgs& args) { Run(rank, &Ops::Router, args); }
  void Experts(int rank, const ExpertsArgs& args) { Run(rank, &Ops::Experts, args); }
  void Markov(int rank, const MarkovArgs& args) { Run(rank, &Ops::Markov, args); }
  void Confidence(int rank, const ConfidenceArgs& args) { Run(rank, &Ops::Confidence, args); }
  void AllReduce(std::span<const AllReduceArgs<Bf16>> ranks);
  void Exchange(std::span<const ExchangeArgs> ranks);

  void Mark(StepMark mark) {}
  int64_t NsBetween(int rank, StepMark from, StepMark to) const { return 0; }

  // Queues the closing exchange on both ranks: without it rank 0 could report success for a STEP
  // that rank 1 refused.
  void CloseStep();

  // Waits for the rank's work and adds what its collectives latched.
  FirstError& error(int rank);

  // After a failed STEP: drains both ranks and resets the pair. A pair that cannot be reset is
  // poisoned.
  void Recover();
  absl::Status MaintainWhileIdle() { return latch_->MaintainWhileIdle(); }
  bool is_healthy() const { return !latch_->is_poisoned(); }

  coll::HostPair& pair() { return *pair_; }
  coll::PairLatch& latch() { return *latch_; }

 private:
  using Ops = CpuOps<Bf16>;

  template <class Work>
  void Queue(int rank, Work work) {
    streams_[rank]->Enqueue(std::move(work));
  }
  template <class Args>
  void Run(int rank, void (Ops::*op)(int, const Args&), const Args& args) {
    Queue(rank, [this, rank, op, args] { (ops_[rank].get()->*op)(rank, args); });
  }
  coll::LatchHooks Hooks();
  // Before each collective is queued. False, and an error of both ranks: the pair refuses.
  bool MayLaunch();
  void ReduceHere(int rank, const AllReduceArgs<Bf16>& args);
  void ExchangeHere(int rank, const ExchangeArgs& args);

  int dim_;
  std::unique_ptr<coll::HostPair> pair_;
  std::unique_ptr<coll::PairLatch> latch_;
  std::array<std::unique_ptr<Ops>, 2> ops_;
  std::array<std::vector<float>, 2> sums_;  // scratch of each rank's stream
  std::array<std::string, 2> error_texts_;  // what the latches point to
  std::string refusal_;                     // likewise
  // Last: streams end before anything their work uses goes away.
  std::array<std::unique_ptr<coll::HostStream>, 2> streams_;
};

static_assert(OpSet<HostPairOps>);

}  // namespace tp2
