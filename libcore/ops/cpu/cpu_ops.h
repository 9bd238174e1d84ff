// The CPU op set: the definition of the product's bits. Every operation finishes before it returns.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "libcore/base/thread_pool.h"
#include "libcore/math/rope.h"
#include "libcore/model/drafter_config.h"
#include "libcore/ops/composed_ops.h"
#include "libcore/ops/cpu/integer_linear.h"
#include "libcore/ops/first_error.h"
#include "libcore/ops/op_args.h"
#include "libcore/ops/op_set.h"

namespace tp2 {

// Thread-compatible. S is Bf16 in the product, L the way to multiply by packed matrices.
template <class S, class L = IntegerLinear>
class CpuOps {
 public:
  using Stored = S;
  template <class T>
  using Buffer = std::vector<T>;
  template <class T>
  using HostBuffer = std::vector<T>;

  // `rank_count` error latches; `thread_count` as ThreadPool.
  CpuOps(const DrafterConfig& config, int rank_count, int thread_count);

  template <class T>
  Buffer<T> Allocate(int rank, int64_t count) {
    return Buffer<T>(static_cast<size_t>(count));
  }
  template <class T>
  HostBuffer<T> AllocateHost(int rank, int64_t count) {
    return HostBuffer<T>(static_cast<size_t>(count));
  }

  RankWeights Place(int rank, const RankWeights& host) const { return host; }

  template <class Body>
  void Record(const GraphKey& key, Body&& body) {}
  template <class Body>
  void Run(const GraphKey& key, Body&& body) {
    body();
  }
  std::vector<GraphSize> GraphSizes() const { return {}; }
  int PaddedRows(int rows) const { return rows; }

  template <class T>
  void Upload(int rank, std::span<const T> host, T* out) {
    std::copy(host.begin(), host.end(), out);
  }
  template <class T>
  void ReadBack(int rank, const T* in, std::span<T> host) {
    std::copy_n(in, host.size(), host.begin());
  }
  template <class T>
  void Download(int rank, const T* in, std::span<T> host) {
    std::copy_n(in, host.size(), host.begin());
  }
  void Wait(int rank) {}

  void Widen(int rank, const WidenArgs& args);
  void Linear(int rank, std::span<const LinearOpArgs> products);
  void RmsNorm(int rank, const RmsNormArgs& args);
  void KvFinish(int rank, const KvFinishArgs<S>& args);
  void QueryFinish(int rank, const QueryFinishArgs& args);
  void Embed(int rank, const EmbedArgs<S>& args);
  void Mix(int rank, const MixArgs<S>& args);
  void HeadMix(int rank, const HeadMixArgs<S>& args);
  void Collapse(int rank, const CollapseArgs<S>& args);
  void Update(int rank, const UpdateArgs<S>& args);
  void Enter(int rank, const EnterArgs<S>& args) {
    EnterByParts(*this, rank, config_.norm_eps, config_.dim, args);
  }
  void Latents(int rank, const LatentArgs<S>& args) { LatentsByParts(*this, rank, args); }
  void Attention(int rank, const AttentionArgs<S>& args);
  void Attend(int rank, const AttendArgs<S>& args) { AttendByParts(*this, rank, args); }
  void GroupedOutput(int rank, const GroupedOutputArgs& args);
  void Router(int rank, const RouterArgs& args);
  void Experts(int rank, const ExpertsArgs& args);
  void Markov(int rank, const MarkovArgs& args);
  void Confidence(int rank, const ConfidenceArgs& args);
  void AllReduce(std::span<const AllReduceArgs<S>> ranks);
  void Exchange(std::span<const ExchangeArgs> ranks);

  // No device to time, no peer to close a STEP with or to lose.
  void Mark(StepMark mark) {}
  int64_t NsBetween(int rank, StepMark from, StepMark to) const { return 0; }
  void CloseStep() {}
  FirstError& error(int rank) { return errors_[rank]; }
  void Recover() {}
  bool is_healthy() const { return true; }

 private:
  std::vector<float> WidenRow(Half16View view, int64_t row) const;
  // out[row] = dots of `fn` with the flattened streams and the inverse RMS of the latter.
  struct StreamDots {
    std::vector<float> dots;         // [rows, outputs]
    std::vector<float> inverse_rms;  // [rows]
  };
  StreamDots DotStreams(const S* streams, int rows, const float* fn, int outputs);

  DrafterConfig config_;
  ThreadPool pool_;
  L linear_;
  std::vector<float> frequencies_;  // [rope_dims / 2]
  float score_scale_;               // 1 / sqrt(head_dim)
  std::vector<FirstError> errors_;
};

extern template class CpuOps<Bf16>;
extern template class CpuOps<float>;

static_assert(OpSet<CpuOps<Bf16>>);

}  // namespace tp2
