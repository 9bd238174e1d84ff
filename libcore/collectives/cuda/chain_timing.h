// Times dependent chains of collectives inside graphs: operation i + 1 reads what operation i
// wrote, so the time of one operation is (t(long) - t(short)) / (long - short) and neither launch
// cost nor overlap of independent operations is in it. Pairs only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/collectives/cuda/captured.h"
#include "libcore/collectives/cuda/cuda_pair.h"
#include "libcore/collectives/cuda/nccl.h"
#include "libcore/device/buffer.h"
#include "libcore/device/stream.h"

namespace tp2::coll {

enum class ChainKind { kSum, kRounded, kBest, kBestTwo, kClose, kNccl };

struct ChainSpec {
  ChainKind kind = ChainKind::kSum;
  int64_t count = 0;  // values, or requests
  cuda::Grid grid;    // of all-reduces
};

// Of one replay, by the cards' own events.
struct ReplayTime {
  double slowest_us = 0;  // of the ranks
  double skew_us = 0;     // slowest minus fastest
};

class ChainTimer;

// Graphs of one chain on both ranks.
class Chain {
 public:
  const ChainSpec& spec() const { return spec_; }
  int length() const { return length_; }

 private:
  friend class ChainTimer;
  ChainSpec spec_;
  int length_ = 0;
  std::vector<CapturedGraph> graphs_;  // by rank
};

// Thread-compatible.
class ChainTimer {
 public:
  static absl::StatusOr<ChainTimer> Create(CudaPair& pair);
  ~ChainTimer();
  ChainTimer(ChainTimer&& other) noexcept;
  ChainTimer& operator=(ChainTimer&&) = delete;

  // Adds NCCL for ChainKind::kNccl.
  void set_nccl(const NcclTeam* nccl) { nccl_ = nccl; }

  absl::StatusOr<Chain> Build(const ChainSpec& spec, int length);
  // One replay on both ranks, rank 1 first; checks the error words.
  absl::StatusOr<ReplayTime> Replay(const Chain& chain);
  // Poisons the results, replays once, compares all elements on both ranks. Number of wrong ones.
  absl::StatusOr<int64_t> Verify(const Chain& chain);

 private:
  struct Rank {
    device::Stream stream;
    device::Buffer<float> x, even, odd;
    device::Buffer<Bf16> rounded;
    device::Buffer<TopTwo> best;
    device::Buffer<int32_t> token, runner_up;
    device::Buffer<float> margin;
    device::PinnedBuffer<Status> status;
    cudaEvent_t start = nullptr;
    cudaEvent_t end = nullptr;
  };

  explicit ChainTimer(CudaPair& pair) : pair_(&pair) {}
  absl::Status InitializeRank(int index);
  absl::Status EnqueueChain(int index, const ChainSpec& spec, int length);
  absl::Status EnqueueNccl(const ChainSpec& spec, int length);
  cuda::ExchangeArgs ExchangeArgsOf(int index, const ChainSpec& spec);
  const float* InputOf(int index, int turn) const;
  float* OutputOf(int index, int turn);
  absl::Status FillResults();
  absl::StatusOr<int64_t> CompareSums(int index, const Chain& chain);
  absl::StatusOr<int64_t> CompareBest(int index, const Chain& chain);

  CudaPair* pair_;
  const NcclTeam* nccl_ = nullptr;
  std::array<Rank, 2> ranks_;
};

}  // namespace tp2::coll
