// The collective kernels' launch contract. One launch is one operation of one rank; every rank
// launches the same sequence with the same grids, on one stream each, without programmatic edges.
// Arguments are static, so a launch can be captured: epochs live in the rank's state. All blocks of
// an operation are resident at once (CudaPair checks); each wait ends after view.timeout_ns.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "libcore/collectives/state_layout.h"
#include "libcore/math/argmax.h"
#include "libcore/math/bf16.h"

namespace tp2::coll::cuda {

struct Grid {
  int blocks = 1;     // at most kMaxBlocks
  int threads = 256;  // a multiple of 32, at most 1024
};

// sum[i] = x of rank 0 [i] + x of rank 1 [i] + ..., fp32 in rank order; `rounded` is its bf16.
// [count] each, count up to the state's max_words. One of the outputs may be null; `sum` may be
// `x`.
struct ReduceArgs {
  const float* x = nullptr;
  int64_t count = 0;
  float* sum = nullptr;
  Bf16* rounded = nullptr;
};

inline constexpr int kMaxExchanges = 32;  // requests of one exchange: a warp

// Merges the ranks' best two; without runner_up and margin only the best one travels. After a
// failure the outputs are token 0 and margin 0, so that later look-ups stay in range; the error
// word says so.
struct ExchangeArgs {
  const TopTwo* best = nullptr;  // this rank's [requests]
  int requests = 0;
  int32_t* token = nullptr;  // [requests], stride token_stride
  int64_t token_stride = 1;
  int32_t* runner_up = nullptr;  // [requests], stride result_stride; null: no margins
  float* margin = nullptr;       // [requests], stride result_stride
  int64_t result_stride = 1;
};

// Faults for tests; kernels with faults are other kernels than those without.
struct Fault {
  int block = -1;               // whose
  int dropped_thread = -1;      // its stores never reach a peer (thread 0: its flags neither)
  bool has_foreign_id = false;  // an exchange sends tokens outside its part
  uint64_t stall_ns = 0;        // the block's threads wait before each store to a peer
  int stalled_lane = -1;        // of each warp, only this one; -1: all
};

struct RankLaunch {
  ProtocolKind protocol = ProtocolKind::kLine;
  RankView view;
  const Fault* fault = nullptr;  // host memory, read by the call
  cudaStream_t stream = nullptr;
};

void LaunchReduce(const RankLaunch& launch, const ReduceArgs& args, Grid grid);
void LaunchExchange(const RankLaunch& launch, const ExchangeArgs& args);
// Ends a STEP: success proves that no rank refused anything in it. Adds 1 to *steps then, and
// leaves the rank's status in *outcome, pinned host memory, either way; both may be null.
void LaunchCloseStep(const RankLaunch& launch, uint32_t* steps, Status* outcome);

// Both ranks of a pair on one card in one cooperative launch: co-resident by construction.
struct BothLaunch {
  ProtocolKind protocol = ProtocolKind::kLine;
  RankView views[2];
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchReduceBoth(const BothLaunch& launch, const ReduceArgs (&args)[2], Grid grid);
cudaError_t LaunchExchangeBoth(const BothLaunch& launch, const ExchangeArgs (&args)[2]);
cudaError_t LaunchCloseStepBoth(const BothLaunch& launch, uint32_t* const (&steps)[2]);

// Blocks of `threads` of the widest all-reduce kernel that fit on the current card at once.
cudaError_t ResidentBlocks(int threads, int* blocks);

// Loads every kernel of this folder on the current card.
cudaError_t PreloadKernels();

}  // namespace tp2::coll::cuda
