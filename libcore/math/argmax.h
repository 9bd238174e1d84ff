// Total order over (score, token): larger score first, equal scores to the lower token. NaN is an
// error, not a score. Same bits on host and device.
#pragma once

#include <cstdint>

#include "libcore/math/hd.h"

namespace tp2 {

struct Scored {
  float score;
  int32_t token;
};

// The two best candidates of a set.
struct TopTwo {
  Scored first;
  Scored second;
};

inline constexpr Scored kNoScore = {-__builtin_huge_valf(), INT32_MAX};

TP2_HD inline bool Beats(Scored a, Scored b) {
  return a.score > b.score || (a.score == b.score && a.token < b.token);
}

TP2_HD inline void Take(TopTwo& best, Scored candidate) {
  if (Beats(candidate, best.first)) {
    best.second = best.first;
    best.first = candidate;
  } else if (Beats(candidate, best.second)) {
    best.second = candidate;
  }
}

// Best two of the union of two disjoint sets.
TP2_HD inline TopTwo Merge(const TopTwo& a, const TopTwo& b) {
  if (Beats(a.first, b.first)) {
    return {a.first, Beats(a.second, b.first) ? a.second : b.first};
  }
  return {b.first, Beats(b.second, a.first) ? b.second : a.first};
}

}  // namespace tp2
