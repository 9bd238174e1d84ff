// An op set that computes nothing itself: it hands every operation to another one and tells a
// GroupClock which group the operation belongs to. Bits are the inner op set's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "libcore/bench/group_clock.h"
#include "libcore/bench/groups.h"
#include "libcore/ops/op_set.h"

namespace tp2::bench {

// Thread-compatible. Only the bodies of draft keys are timed.
template <OpSet O>
class TimedOps {
 public:
  using Stored = typename O::Stored;
  template <class T>
  using Buffer = typename O::template Buffer<T>;
  template <class T>
  using HostBuffer = typename O::template HostBuffer<T>;

  // `clock` must outlive this. `only_rank`: whose operations count, where each rank has a stream of
  // its own.
  TimedOps(std::unique_ptr<O> inner, GroupClock* clock, std::optional<int> only_rank = {})
      : inner_(std::move(inner)), clock_(clock), only_rank_(only_rank) {}

  template <class T>
  Buffer<T> Allocate(int rank, int64_t count) {
    return inner_->template Allocate<T>(rank, count);
  }
  template <class T>
  HostBuffer<T> AllocateHost(int rank, int64_t count) {
    return inner_->template AllocateHost<T>(rank, count);
  }
  template <class T>
  void Upload(int rank, std::span<const T> host, T* out) {
    inner_->Upload(rank, host, out);
  }
  template <class T>
  void ReadBack(int rank, const T* in, std::span<T> host) {
    MarkGroup(rank, KernelGroup::kOther);
    inner_->ReadBack(rank, in, host);
  }
  void Wait(int rank) { inner_->Wait(rank); }
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
  void Record(const GraphKey& key, Body&& body) {
    clock_->Prepare();
    inner_->Record(key, [&] { RunTimed(key, body); });
  }
  template <class Body>
  void Run(const GraphKey& key, Body&& body) {
    if (key.kind == GraphKey::Kind::kDraft) clock_->set_latest_key(key);
    clock_->Prepare();
    inner_->Run(key, [&] { RunTimed(key, body); });
  }
  std::vector<GraphSize> GraphSizes() const { return inner_->GraphSizes(); }
  int PaddedRows(int rows) const { return inner_->PaddedRows(rows); }

  void Widen(int rank, const WidenArgs& args) {
    MarkGroup(rank, KernelGroup::kNorms);
    inner_->Widen(rank, args);
  }
  void Linear(int rank, std::span<const LinearOpArgs> products) {
    const bool is_head = heads_.count(products.front().matrix->trellis) > 0;
    MarkGroup(rank, is_head ? KernelGroup::kHead : KernelGroup::kDense);
    inner_->Linear(rank, products);
  }
  void RmsNorm(int rank, const RmsNormArgs& args) {
    MarkGroup(rank, KernelGroup::kNorms);
    inner_->RmsNorm(rank, args);
  }
  void KvFinish(int rank, const KvFinishArgs<Stored>& args) {
    MarkGroup(rank, KernelGroup::kNorms);
    inner_->KvFinish(rank, args);
  }
  void QueryFinish(int rank, const QueryFinishArgs& args) {
    MarkGroup(rank, KernelGroup::kNorms);
    inner_->QueryFinish(rank, args);
  }
  void Embed(int rank, const EmbedArgs<Stored>& args) {
    MarkGroup(rank, KernelGroup::kOther);
    inner_->Embed(rank, args);
  }
  void Mix(int rank, const MixArgs<Stored>& args) {
    MarkGroup(rank, KernelGroup::kMhc);
    inner_->Mix(rank, args);
  }
  void HeadMix(int rank, const HeadMixArgs<Stored>& args) {
    MarkGroup(rank, KernelGroup::kMhc);
    inner_->HeadMix(rank, args);
  }
  void Collapse(int rank, const CollapseArgs<Stored>& args) {
    MarkGroup(rank, KernelGroup::kMhc);
    inner_->Collapse(rank, args);
  }
  void Update(int rank, const UpdateArgs<Stored>& args) {
    MarkGroup(rank, KernelGroup::kMhc);
    inner_->Update(rank, args);
  }
  void Enter(int rank, const EnterArgs<Stored>& args) {
    MarkGroup(rank, KernelGroup::kMhc);
    inner_->Enter(rank, args);
  }
  // Norms, KV finish and wq_b; the product is most of it.
  void Latents(int rank, const LatentArgs<Stored>& args) {
    MarkGroup(rank, KernelGroup::kDense);
    inner_->Latents(rank, args);
  }
  void Attention(int rank, const AttentionArgs<Stored>& args) {
    MarkGroup(rank, KernelGroup::kAttention);
    inner_->Attention(rank, args);
  }
  void Attend(int rank, const AttendArgs<Stored>& args) {
    MarkGroup(rank, KernelGroup::kAttention);
    inner_->Attend(rank, args);
  }
  void GroupedOutput(int rank, const GroupedOutputArgs& args) {
    MarkGroup(rank, KernelGroup::kWoA);
    inner_->GroupedOutput(rank, args);
  }
  void Router(int rank, const RouterArgs& args) {
    MarkGroup(rank, KernelGroup::kRouting);
    inner_->Router(rank, args);
  }
  void Experts(int rank, const ExpertsArgs& args) {
    MarkGroup(rank, KernelGroup::kExperts);
    inner_->Experts(rank, args);
  }
  void Markov(int rank, const MarkovArgs& args) {
    MarkGroup(rank, KernelGroup::kMarkov);
    inner_->Markov(rank, args);
  }
  void Confidence(int rank, const ConfidenceArgs& args) {
    MarkGroup(rank, KernelGroup::kOther);
    inner_->Confidence(rank, args);
  }
  void AllReduce(std::span<const AllReduceArgs<Stored>> ranks) {
    MarkGroup(only_rank_, KernelGroup::kCollectives);
    inner_->AllReduce(ranks);
  }
  void Exchange(std::span<const ExchangeArgs> ranks) {
    MarkGroup(only_rank_, KernelGroup::kCollectives);
    inner_->Exchange(ranks);
  }

  void Mark(StepMark mark) { inner_->Mark(mark); }
  int64_t NsBetween(int rank, StepMark from, StepMark to) {
    return inner_->NsBetween(rank, from, to);
  }
  void CloseStep() {
    MarkGroup(only_rank_, KernelGroup::kCollectives);
    inner_->CloseStep();
  }
  FirstError& error(int rank) { return inner_->error(rank); }
  void Recover() { inner_->Recover(); }
  bool is_healthy() const { return inner_->is_healthy(); }

 private:
  template <class Body>
  void RunTimed(const GraphKey& key, Body&& body) {
    if (key.kind != GraphKey::Kind::kDraft) return body();
    clock_->Begin(key);
    is_timed_ = true;
    group_.reset();
    body();
    is_timed_ = false;
    clock_->End();
  }
  void MarkGroup(std::optional<int> rank, KernelGroup group) {
    if (!is_timed_ || group_ == group) return;
    if (only_rank_.has_value() && rank != only_rank_) return;
    group_ = group;
    clock_->Mark(group);
  }

  std::unique_ptr<O> inner_;
  GroupClock* clock_;
  std::optional<int> only_rank_;
  std::set<const uint16_t*> heads_;  // where the ranks' head matrices begin
  bool is_timed_ = false;
  std::optional<KernelGroup> group_;
};

}  // namespace tp2::bench
