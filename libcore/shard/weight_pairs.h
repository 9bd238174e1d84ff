// Every weight of a rank beside the whole checkpoint's, by name: what shard_check.h compares and
// tools list. Views only.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "libcore/checkpoint/weights.h"
#include "libcore/model/drafter_config.h"
#include "libcore/shard/rank_weights.h"

namespace tp2 {

// `parts` follow each other along the cut axis: one, or one per half of a row-cut matrix.
struct MatrixPair {
  std::string name;  // of the registry's rule; a slice of wo_a: "mtp.0.attn.wo_a"
  exl3::MatrixView whole;
  std::vector<exl3::MatrixView> parts;
  int outputs_before = 0;  // of the tensor, in front of this matrix (slices of wo_a)
};

// A plain tensor, row-major: bytes of the whole and of the rank's rows.
struct PlainPair {
  std::string name;  // of the registry's rule
  std::span<const std::byte> whole;
  std::span<const std::byte> part;
  int rows_per_line = 1;  // rows of the rule's outputs that one stored line covers (FP8 scales)
};

std::vector<MatrixPair> MatrixPairs(const DrafterConfig& config, const DrafterWeights& whole,
                                    const RankWeights& rank, const ShardPlan& plan);
std::vector<PlainPair> PlainPairs(const DrafterConfig& config, const DrafterWeights& whole,
                                  const RankWeights& rank, const ShardPlan& plan);

}  // namespace tp2
