// Both op sets over one synthetic checkpoint, made once per shape.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "libcore/checkpoint/loader.h"
#include "libcore/ops/cpu/cpu_ops.h"
#include "libcore/ops/cuda/cuda_ops.h"
#include "libcore/shard/rank_weights.h"

namespace tp2 {

inline constexpr int64_t kTestPositions = 70000;

struct OpPair {
  std::unique_ptr<Checkpoint> checkpoint;
  DrafterConfig config;
  ShardPlan plan;
  RankWeights host, card;
  std::unique_ptr<CpuOps<Bf16>> cpu;
  std::unique_ptr<CudaOps> cuda;
};

// Folder with a synthetic checkpoint of this shape; written at the first call.
std::string SyntheticFolder(const std::string& shape);

// "" when there is a usable card, else why not.
std::string WhyNoGpu();

// Rank `rank` of `tp` over SyntheticFolder(shape). Aborts on failure: nothing can be tested then.
// multiprocessors: how many the launches are made for; 0: the card's.
OpPair& GetOpPair(const std::string& shape, int tp, int rank, int multiprocessors = 0);

}  // namespace tp2

// In a test body or SetUp: skips, with the reason, without a usable card.
#define TP2_NEEDS_GPU()                                          \
  if (const std::string why = ::tp2::WhyNoGpu(); !why.empty()) { \
    GTEST_SKIP() << why;                                         \
  }
