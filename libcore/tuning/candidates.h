// Which choices are worth timing for a launch, and one line for each that is not. Knobs that no
// kernel has do not appear: products have the number of parts of K, all-reduces protocol, blocks
// and threads.
#pragma once

#include <string>
#include <vector>

#include "libcore/tuning/kernel_key.h"

namespace tp2::tuning {

struct Pruned {
  std::string choice;  // "splits=15", "splits=21 and more"
  std::string reason;  // "parts of fewer than 256 inputs"
};

struct CandidateList {
  std::vector<Choice> choices;  // at least one; the smaller configuration first
  std::vector<Pruned> pruned;
};

// A safe choice (launch_limits.h) is always a candidate.
CandidateList ProductCandidates(const ProductLaunch& launch, int multiprocessors);

// `resident_blocks`: see launch_limits.h.
CandidateList ReduceCandidates(const ReduceKey& key, int resident_blocks, int multiprocessors);

// The choice that a launch gets without a table.
Choice SafeChoice(const ProductLaunch& launch, int multiprocessors);
Choice SafeChoice(const ReduceKey& key, int resident_blocks, int multiprocessors);

// What one thread moves of an all-reduce: values of an item.
int ItemWordsOf(PairProtocol protocol);

}  // namespace tp2::tuning
