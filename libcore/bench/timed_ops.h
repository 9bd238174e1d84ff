// An op set that computes nothing itself: it hands every operation to another one and tells a
// GroupClock which group the operation belongs to. Bits are the inner op set's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "libcore/bench/group_clock.h"
#include "libcore/bench/groups.h"
#include "libcore/ops/op_set.h"

namespace tp2::bench {

// Thread-compatible. Only what runs inside Repeat is timed: the draft step.
template <OpSet O>
class TimedOps {
 public:
  using Stored = typename O::Stored;
  template <class T>
  using Buffer = typename O::template Buffer<T>;

  // `clock` must outlive this.
  TimedOps(std::unique_ptr<O> inner, GroupClock* clock) : inner_(std::move(inner)), clock_(clock) {}

  template <class T>
  Buffer<T> Allocate(int rank, int64_t count) {
    return inner_->template Allocate<T>(rank, count);
  }
  template <class T>
  void Upload(int rank, std::span<const T> host, T* out) {
    inner_->Upload(rank, host, out);
  }
  template <class T>
  void Download(int rank, const T* in, std::span<T> host) {
    inner_->Download(rank, in, host);
  }
  RankWeights Place(int rank, const RankWeights& host) {
    RankWeights placed = inner_->Place(rank, host);
    heads_.insert(placed.head.trellis);
    return placed;
  }

  template <class Body>
  void Repeat(int key, Body&& body) {
    clock_->set_latest_key(key);
    inner_->Repeat(key, [&] {
      clock_->Begin(key);
      is_timed_ = true;
      group_.reset();
      body();
      is_timed_ = false;
      clock_->End();
    });
  }

  void Widen(int rank, const WidenArgs& args) {
    Enter(KernelGroup::kNorms);
    inner_->Widen(rank, args);
  }
  void Linear(int rank, const LinearOpArgs& args) {
    Enter(heads_.count(args.matrix->trellis) > 0 ? KernelGroup::kHead : KernelGroup::kDense);
    inner_->Linear(rank, args);
  }
  void RmsNorm(int rank, const RmsNormArgs& args) {
    Enter(KernelGroup::kNorms);
    inner_->RmsNorm(rank, args);
  }
  void KvFinish(int rank, const KvFinishArgs<Stored>& args) {
    Enter(KernelGroup::kNorms);
    inner_->KvFinish(rank, args);
  }
  void QueryFinish(int rank, const QueryFinishArgs& args) {
    Enter(KernelGroup::kNorms);
    inner_->QueryFinish(rank, args);
  }
  void Embed(int rank, const EmbedArgs<Stored>& args) {
    Enter(KernelGroup::kOther);
    inner_->Embed(rank, args);
  }
  void Mix(int rank, const MixArgs<Stored>& args) {
    Enter(KernelGroup::kMhc);
    inner_->Mix(rank, args);
  }
  void HeadMix(int rank, const HeadMixArgs<Stored>& args) {
    Enter(KernelGroup::kMhc);
    inner_->HeadMix(rank, args);
  }
  void Collapse(int rank, const CollapseArgs<Stored>& args) {
    Enter(KernelGroup::kMhc);
    inner_->Collapse(rank, args);
  }
  void Update(int rank, const UpdateArgs<Stored>& args) {
    Enter(KernelGroup::kMhc);
    inner_->Update(rank, args);
  }
  void Attention(int rank, const AttentionArgs<Stored>& args) {
    Enter(KernelGroup::kAttention);
    inner_->Attention(rank, args);
  }
  void GroupedOutput(int rank, const GroupedOutputArgs& args) {
    Enter(KernelGroup::kWoA);
    inner_->GroupedOutput(rank, args);
  }
  void Router(int rank, const RouterArgs& args) {
    Enter(KernelGroup::kRouting);
    inner_->Router(rank, args);
  }
  void Experts(int rank, const ExpertsArgs& args) {
    Enter(KernelGroup::kExperts);
    inner_->Experts(rank, args);
  }
  void Markov(int rank, const MarkovArgs& args) {
    Enter(KernelGroup::kMarkov);
    inner_->Markov(rank, args);
  }
  void Confidence(int rank, const ConfidenceArgs& args) {
    Enter(KernelGroup::kOther);
    inner_->Confidence(rank, args);
  }
  void AllReduce(std::span<const AllReduceArgs<Stored>> ranks) {
    Enter(KernelGroup::kOther);
    inner_->AllReduce(ranks);
  }
  void Exchange(std::span<const ExchangeArgs> ranks) {
    Enter(KernelGroup::kMarkov);
    inner_->Exchange(ranks);
  }

  void Mark(StepMark mark) { inner_->Mark(mark); }
  int64_t NsBetween(StepMark from, StepMark to) { return inner_->NsBetween(from, to); }
  void CloseStep() { inner_->CloseStep(); }
  FirstError& error(int rank) { return inner_->error(rank); }
  void Recover() { inner_->Recover(); }
  bool is_healthy() const { return inner_->is_healthy(); }

 private:
  void Enter(KernelGroup group) {
    if (!is_timed_ || group_ == group) return;
    group_ = group;
    clock_->Mark(group);
  }

  std::unique_ptr<O> inner_;
  GroupClock* clock_;
  std::set<const uint16_t*> heads_;  // where the ranks' head matrices begin
  bool is_timed_ = false;
  std::optional<KernelGroup> group_;
};

}  // namespace tp2::bench
