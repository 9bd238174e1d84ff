// Nearest-rank statistics of measured times: a percentile is always a value that was measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "libcore/base/check.h"

namespace tp2 {

// The value of rank ceil(percent * count / 100), at least the first. `values` may be in any order
// and is not empty; 0 <= percent <= 100.
template <class T>
T NearestRank(std::vector<T> values, int percent) {
  TP2_CHECK(!values.empty());
  const size_t rank = (values.size() * static_cast<size_t>(percent) + 99) / 100;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Median absolute deviation from the median, both by nearest rank.
template <class T>
T MedianDeviation(const std::vector<T>& values) {
  const T median = NearestRank(values, 50);
  std::vector<T> deviations;
  deviations.reserve(values.size());
  for (const T value : values) {
    deviations.push_back(value > median ? value - median : median - value);
  }
  return NearestRank(std::move(deviations), 50);
}

}  // namespace tp2
