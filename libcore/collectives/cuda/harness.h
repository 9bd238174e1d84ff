// Kernels around the collectives for qualification: delays, payloads that can be recomputed, and
// their verification. Payloads are functions of (seed, rank, turn, index) with the turn in device
// memory, so that replays of one graph carry new data every time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "libcore/base/rng.h"
#include "libcore/collectives/cuda/launch.h"
#include "libcore/math/argmax.h"

namespace tp2::coll::cuda {

// On a grid of 2^-23 with four binary orders of magnitude, so that sums round.
constexpr float PayloadAt(uint64_t seed, int rank, uint32_t turn, int64_t index) {
  const uint64_t bits = RandomAt(seed + (uint64_t{turn} << 3) + static_cast<uint64_t>(rank),
                                 static_cast<uint64_t>(index));
  const auto mantissa = static_cast<int32_t>(bits >> 40) - (1 << 23);
  return static_cast<float>(mantissa) * 0x1p-23f * static_cast<float>(1 << (bits & 15));
}

// Two candidates of the rank's part, the better one first; few distinct scores, so that ties occur.
constexpr TopTwo BestAt(uint64_t seed, int rank, uint32_t turn, int request, TokenRange part) {
  const uint64_t bits = RandomAt(seed + (uint64_t{turn} << 3) + static_cast<uint64_t>(rank),
                                 uint64_t{1} << 40 | static_cast<uint64_t>(request));
  const auto span = static_cast<uint32_t>(part.end - part.begin - 1);
  const int32_t token = part.begin + static_cast<int32_t>((bits >> 8 & 0xffffff) % span);
  const float score = static_cast<float>(bits & 7);
  const float gap = static_cast<float>(bits >> 3 & 1);
  return {{score, token}, {score - gap, token + 1}};
}

struct FillArgs {
  uint64_t seed = 0;
  int rank = 0;
  const uint32_t* turn = nullptr;
  float* values = nullptr;  // [count]
  int64_t count = 0;
  TopTwo* best = nullptr;  // [requests]
  int requests = 0;
  TokenRange part;
};

struct VerifyArgs {
  uint64_t seed = 0;
  int rank_count = 2;
  const uint32_t* turn = nullptr;
  const float* sum = nullptr;  // [count], or null
  const Bf16* rounded = nullptr;
  int64_t count = 0;
  TokenRange parts[kMaxRanks];
  ExchangeArgs exchange;  // requests 0: none
  unsigned long long* wrong_count = nullptr;
};

void LaunchStall(uint64_t duration_ns, cudaStream_t stream);
void LaunchFill(const FillArgs& args, cudaStream_t stream);
void LaunchFillBest(const FillArgs& args, cudaStream_t stream);
// Adds the number of wrong elements to *wrong_count, and poisons what it has read.
void LaunchVerify(const VerifyArgs& args, cudaStream_t stream);
void LaunchVerifyBest(const VerifyArgs& args, cudaStream_t stream);
void LaunchCountTurn(uint32_t* turn, cudaStream_t stream);

// sum = a + b [count], and its bf16; outputs may be null. The oracle's addition.
void LaunchAdd(const float* a, const float* b, int64_t count, float* sum, Bf16* rounded,
               cudaStream_t stream);

// Line i of a pattern is a function of (seed, i). Stores go to a peer's memory, checks read own.
void LaunchPatternStore(Line* lines, int64_t count, uint64_t seed, cudaStream_t stream);
void LaunchPatternCheck(const Line* lines, int64_t count, uint64_t seed,
                        unsigned long long* wrong_count, cudaStream_t stream);

cudaError_t PreloadHarnessKernels();

}  // namespace tp2::coll::cuda
