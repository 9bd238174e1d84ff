// Kernels that measure what one link and one card can do: latencies, fence cost, push rate, torn
// lines. Every wait is bounded; times are of the card's own global timer.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "libcore/collectives/cuda/launch.h"

namespace tp2::coll::cuda {

enum class ProbeAccess : int { kWord, kLine, kAcquireRelease };
enum class TornWidth : int { kScalar128, kVector4, kWarp128 };

// Both cards run it at once: `own` is local memory that the peer writes, `peer` the peer's.
struct PingPongArgs {
  Line* own = nullptr;
  Line* peer = nullptr;
  int rounds = 0;
  bool is_first = false;
  uint64_t timeout_ns = 0;
};
// Written by the side that plays first; the clock offset by kLine alone.
struct PingPongResult {
  uint64_t total_ns = 0;  // of all rounds; 0: timed out
  uint64_t best_round_ns = 0;
  int64_t peer_clock_ahead_ns = 0;  // estimated at the fastest round
};
void LaunchPingPong(ProbeAccess access, const PingPongArgs& args, PingPongResult* result,
                    cudaStream_t stream);

// One block stores `bytes` to `peer` and then fences at system scope, `rounds` times:
// total_ns[0] with the fence, total_ns[1] without.
void LaunchFenceCost(Line* peer, int64_t bytes, int rounds, uint64_t* total_ns,
                     cudaStream_t stream);

// Stores `count` lines to `peer`, `rounds` times.
void LaunchPushRate(Line* peer, int64_t count, int rounds, Grid grid, cudaStream_t stream);

void LaunchEmpty(cudaStream_t stream);
// With a programmatic edge to what stands before it on the stream; sm_90.
cudaError_t LaunchProgrammatic(cudaStream_t stream);
void LaunchStamp(uint64_t* now_ns, cudaStream_t stream);

// The writer stores `rounds` generations of `count` lines whose words are all equal; the reader
// counts units (16 bytes, or 128 bytes of a warp's quarter) whose words differ until it has seen
// the last generation or the timeout.
struct TornResult {
  unsigned long long torn = 0;
  unsigned long long units = 0;
  unsigned long long changes = 0;  // units that were newer than the read before
};
void LaunchTornWriter(TornWidth width, Line* peer, int64_t count, int rounds, cudaStream_t stream);
void LaunchTornReader(TornWidth width, const Line* own, int64_t count, int rounds,
                      uint64_t timeout_ns, TornResult* result, cudaStream_t stream);

// `rounds` dependent polls of a word at `address`.
void LaunchPollLatency(const Line* address, int rounds, uint64_t* total_ns, cudaStream_t stream);

cudaError_t PreloadProbeKernels();

}  // namespace tp2::coll::cuda
