// Which part of the drafter a rank owns: pure functions of the sizes. One-card is the plan with tp
// = 1. Source: the specification's Layout table. Every cut lies on a 128-channel boundary, the
// vocabulary on a 256 tile.
#pragma once

#include <array>

#include "absl/status/statusor.h"
#include "libcore/model/drafter_config.h"

namespace tp2 {

// Row-cut matrices are always summed as this many partials, whatever tp is: bf16(partial 0 +
// partial 1).
inline constexpr int kHalves = 2;

inline constexpr int kVocabTile =
    256;  // the head kernel's column tile: the vocabulary is cut there

struct Span {
  int begin = 0;
  int end = 0;
  int count() const { return end - begin; }
  friend bool operator==(const Span&, const Span&) = default;
};

struct ShardPlan {
  int tp = 1;
  int rank = 0;
  Span heads;                  // query heads and their sinks: wq_b columns, attention
  Span groups;                 // output groups: wo_a
  Span channels;               // intermediate channels of every expert: w1 / w3 columns
  Span vocab;                  // head, Markov head
  Span halves;                 // partials of wo_b and w2 that this rank computes
  bool has_confidence = true;  // rank 0 only
};

// Errors: kInvalidArgument when the sizes do not cut at the required boundaries.
absl::StatusOr<ShardPlan> MakeShardPlan(const DrafterConfig& config, int tp, int rank);

// Half `half` of `extent` row-cut inputs.
inline Span HalfOf(int extent, int half) {
  return {extent / kHalves * half, extent / kHalves * (half + 1)};
}

}  // namespace tp2
