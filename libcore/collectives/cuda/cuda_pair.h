// The ranks of a team on their cards, driven by one controller: peer states, launches,
// cancellation, drained reset and the latch that poisons the team. Launches only enqueue; the
// highest rank is enqueued first, so that rank 0's results come last. All ranks may share one card,
// for tests.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/collectives/cuda/launch.h"
#include "libcore/collectives/cuda/peer_state.h"
#include "libcore/collectives/state_layout.h"
#include "libcore/device/buffer.h"
#include "libcore/device/select.h"
#include "libcore/device/stream.h"
#include "libcore/tuning/kernel_choices.h"

namespace tp2::coll {

struct CudaPairOptions {
  std::vector<device::DeviceInfo> cards;  // by rank; the same card may serve several
  ProtocolKind protocol = ProtocolKind::kLine;
  int64_t max_words = 163840;      // fp32 values of the largest all-reduce
  std::vector<TokenRange> tokens;  // by rank, as CheckTokenRanges wants; empty: no exchanges
  uint64_t timeout_ns = 2'000'000'000;
  uint32_t max_epoch = kMaxEpoch;
  // Grids of all-reduces; null: safe defaults. Its protocol, where it has one, must be `protocol`.
  std::shared_ptr<tuning::KernelChoices> kernels = nullptr;
};

// Thread-compatible, except Cancel: one controller. A capture on a rank's stream may call the
// launches; replays are announced by NoteReplay.
class CudaPair {
 public:
  // Enables peer access, allocates, checks data both ways, loads every kernel. Errors:
  // kUnavailable under CUDA_LAUNCH_BLOCKING or without a peer path, kDataLoss, CheckTokenRanges'.
  static absl::StatusOr<std::unique_ptr<CudaPair>> Create(const CudaPairOptions& options);
  ~CudaPair();
  CudaPair(const CudaPair&) = delete;
  CudaPair& operator=(const CudaPair&) = delete;

  int rank_count() const { return static_cast<int>(options_.cards.size()); }
  const CudaPairOptions& options() const { return options_; }
  const device::DeviceInfo& card(int rank) const { return options_.cards[rank]; }

  // The grid for an all-reduce of `count` values: the table's, else one item per thread while they
  // fit.
  cuda::Grid GridFor(int64_t count) const;

  // Each enqueues one rank's part of the next operation on `stream`, a stream of its card. Errors:
  // kFailedPrecondition when poisoned, when another stream of the rank is still busy, or when a
  // size is too large; kAborted, and the pair is poisoned, after a CUDA error.
  absl::Status AllReduce(int rank, const cuda::ReduceArgs& args, cudaStream_t stream);
  absl::Status AllReduce(int rank, const cuda::ReduceArgs& args, cuda::Grid grid,
                         const cuda::Fault* fault, cudaStream_t stream);
  absl::Status Exchange(int rank, const cuda::ExchangeArgs& args, cudaStream_t stream,
                        const cuda::Fault* fault = nullptr);
  // The rank's status as the STEP ended goes to `outcome`, pinned host memory, if not null.
  absl::Status CloseStep(int rank, cudaStream_t stream, Status* outcome = nullptr);

  // Both ranks of a pair on one card, in one cooperative launch.
  absl::Status AllReduceBoth(const cuda::ReduceArgs (&args)[2], cuda::Grid grid,
                             cudaStream_t stream);
  absl::Status ExchangeBoth(const cuda::ExchangeArgs (&args)[2], cudaStream_t stream);
  absl::Status CloseStepBoth(cudaStream_t stream);

  // Before a captured graph with the rank's operations is launched on `stream`.
  absl::Status NoteReplay(int rank, cudaStream_t stream);

  // Enqueues a copy of the rank's status to pinned `status` behind what `stream` already holds.
  absl::Status CopyStatus(int rank, Status* status, cudaStream_t stream);

  // Ends waits of all ranks from streams of their own; the pair refuses until Recover. Any thread.
  absl::Status Cancel();

  // Waits, bounded, until every tracked stream is idle. A wait that ends late, or a CUDA error,
  // poisons the pair.
  absl::Status Drain();
  // After Drain.
  absl::StatusOr<Status> ReadStatus(int rank);
  absl::StatusOr<uint32_t> ReadClosedSteps(int rank);
  // Drains, clears all states and starts the next generation. Refused when poisoned.
  absl::Status Recover();
  // Whether so many epochs are gone that a reset should come before they run out.
  bool IsNearExhaustion(const Status& status) const {
    return status.epoch > options_.max_epoch - options_.max_epoch / 16;
  }

  // The latch: set for the process's life by a late drain or a CUDA error.
  bool is_poisoned() const { return !poison_.ok(); }
  const absl::Status& poison() const { return poison_; }

 private:
  struct Rank {
    PeerState state;
    device::Stream control;  // resets and reads; never holds a collective
    device::Stream cancel;
    device::Buffer<uint32_t> closed_steps;
    std::vector<cudaStream_t> streams;  // that may still hold operations
  };

  explicit CudaPair(const CudaPairOptions& options) : options_(options) {}
  absl::Status Initialize();
  absl::Status InitializeRank(int rank);
  // All resident at once.
  int MostBlocks(int threads) const;
  absl::Status CheckKernels() const;
  absl::Status CheckGrid(cuda::Grid grid) const;
  absl::Status BeforeLaunch(int rank, cudaStream_t stream);
  absl::Status AfterLaunch(cudaError_t error);
  absl::Status Poison(const absl::Status& reason);
  absl::Status WaitIdle(cudaStream_t stream);
  cuda::RankLaunch LaunchOf(int rank, const cuda::Fault* fault, cudaStream_t stream) const;
  cuda::BothLaunch BothLaunchOf(cudaStream_t stream) const;
  StateSize size() const { return {options_.protocol, rank_count(), options_.max_words}; }
  Header* header(int rank) const { return reinterpret_cast<Header*>(ranks_[rank].state.data()); }

  CudaPairOptions options_;
  std::vector<Rank> ranks_;
  std::vector<RankView> views_;
  int resident_blocks_ = 0;  // of 1024 threads, for each rank that shares a card
  uint32_t generation_ = 0;
  device::PinnedBuffer<uint32_t> words_;  // [0] 1, [1] generation, [2] read-backs
  device::PinnedBuffer<Status> statuses_;
  absl::Status poison_;
};

// Whether pairs can work in this process: kUnavailable with the reason under CUDA_LAUNCH_BLOCKING,
// which makes the first rank's launch wait for a partner that is never launched.
absl::Status CheckLaunchMode();

}  // namespace tp2::coll
