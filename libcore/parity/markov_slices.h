// Markov bias rows on slices: what a rank computes or caches for its part of the vocabulary is the
// unsplit row's part, bit for bit.
#pragma once

#include <string>
#include <vector>

#include "libcore/checkpoint/weights.h"
#include "libcore/model/drafter_config.h"
#include "libcore/shard/shard_check.h"

namespace tp2 {

struct MarkovCheck {
  int tokens = 0;                        // previous tokens whose bias rows were compared
  std::vector<std::string> differences;  // one line per differing rank and token
};

// Compares rows of the first and last token, of those on both sides of every cut, of the noise
// token and of 64 spread over the vocabulary.
MarkovCheck CheckMarkovSlices(const DrafterConfig& config, const DrafterWeights& whole,
                              const std::vector<RankShard>& ranks, int thread_count);

}  // namespace tp2
