// Proof of the cut: every weight that a rank would compute with, against the whole checkpoint at
// the place where the shard table puts it. decode(slice) == slice(decode) for every EXL3 matrix,
// equal bytes for everything else.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "libcore/base/thread_pool.h"
#include "libcore/checkpoint/weights.h"
#include "libcore/model/drafter_config.h"
#include "libcore/shard/rank_weights.h"
#include "libcore/shard/shard_plan.h"

namespace tp2 {

// What one rank would compute with: CutWeights of its plan.
struct RankShard {
  ShardPlan plan;
  RankWeights weights;
};

struct ShardCheck {
  int64_t matrices = 0;       // EXL3 matrices compared, over all ranks
  int64_t plain_tensors = 0;  // FP8 bytes and scales, sinks, Markov rows, norms, ...
  int64_t weights = 0;        // decoded weights compared
  int64_t bytes = 0;          // of plain tensors compared
  // One line per tensor that differs, sorted; empty when the cut is right.
  std::vector<std::string> differences;
};

// Called with decoded weights done and in all, from any thread, one at a time.
using ShardProgress = std::function<void(int64_t done, int64_t total)>;

// Decodes 128 x 128 blocks, so that memory stays small for every model; reads every weight of
// every rank once. `progress` may be empty.
ShardCheck CheckShards(const DrafterConfig& config, const DrafterWeights& whole,
                       const std::vector<RankShard>& ranks, ThreadPool& pool,
                       const ShardProgress& progress);

// The block of decoded weights with corner (k_begin, n_begin), multiples of 128: the same numbers
// as exl3::DenseWeights(matrix, kFp16) there. out: [128, 128] row-major.
void DecodeBlock(const exl3::MatrixView& matrix, int k_begin, int n_begin, double* out);

}  // namespace tp2
