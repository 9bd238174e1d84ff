// The CPU op set with one fault: every operation that the fault concerns is changed in its
// arguments, or computed by a plain faulty version of its own; all others are CpuOps untouched.
#pragma once

#include <cstdint>
#include <vector>

#include "libcore/ops/cpu/cpu_ops.h"
#include "libcore/parity/mutation.h"

namespace tp2 {

// Thread-compatible. One rank.
class MutatedOps : public CpuOps<Bf16> {
 public:
  MutatedOps(const DrafterConfig& config, int thread_count, Mutation mutation);

  void Linear(int rank, std::span<const LinearOpArgs> products);
  void RmsNorm(int rank, const RmsNormArgs& args);
  void KvFinish(int rank, const KvFinishArgs<Bf16>& args);
  void QueryFinish(int rank, const QueryFinishArgs& args);
  void Embed(int rank, const EmbedArgs<Bf16>& args);
  void Mix(int rank, const MixArgs<Bf16>& args);
  void Collapse(int rank, const CollapseArgs<Bf16>& args);
  void Update(int rank, const UpdateArgs<Bf16>& args);
  void Enter(int rank, const EnterArgs<Bf16>& args) {
    EnterByParts(*this, rank, config_.norm_eps, config_.dim, args);
  }
  void Latents(int rank, const LatentArgs<Bf16>& args) { LatentsByParts(*this, rank, args); }
  void Attention(int rank, const AttentionArgs<Bf16>& args);
  void Attend(int rank, const AttendArgs<Bf16>& args) { AttendByParts(*this, rank, args); }
  void Router(int rank, const RouterArgs& args);
  void Experts(int rank, const ExpertsArgs& args);
  void Confidence(int rank, const ConfidenceArgs& args);

 private:
  using Base = CpuOps<Bf16>;

  void Multiply(int rank, const LinearOpArgs& args);
  bool Is(Mutation mutation) const { return mutation_ == mutation; }
  // One position early: the anchor's row placed on the last context row.
  std::vector<int64_t> Shifted(const int64_t* positions, int rows) const;
  void NormalizeHeads(const QueryFinishArgs& args) const;
  void PlainAttention(const AttentionArgs<Bf16>& args);
  void AttendRow(const AttentionArgs<Bf16>& args, const std::vector<float>& keys, int key_count,
                 int row, int head);
  void PlainExperts(const ExpertsArgs& args);

  DrafterConfig config_;
  Mutation mutation_;
  ThreadPool pool_;
  // What earlier operations left for the faults that mix values up.
  const int64_t* block_positions_ = nullptr;
  const MixCoefficients* latest_mix_ = nullptr;
  const float* hidden_ = nullptr;
  bool is_second_half_ = false;
};

}  // namespace tp2
