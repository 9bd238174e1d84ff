// Two results of tp2-bench side by side: what got slower, and whether the two may be compared.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/base/json.h"

namespace tp2::bench {

struct CompareOptions {
  double max_regression_pct = 3;  // of the median
  bool goes_across = false;       // other cards, models, cells or ways to measure are no refusal
};

struct CellComparison {
  std::string cell;
  std::string series;  // "draft_device_us"
  double before_us = 0, after_us = 0;
  double noise_us = 0;  // three times the larger median deviation of the two
  bool is_regression = false;

  double ratio() const { return after_us / before_us; }
};

struct Comparison {
  std::vector<CellComparison> cells;     // in the order of the first file
  std::vector<std::string> left_out;     // cells of one file only
  std::vector<std::string> differences;  // of what should be equal: "card: NVIDIA H200, ..."
  bool has_regression() const;
};

// Slower by more than max_regression_pct and by more than the noise is a regression. Errors:
// kInvalidArgument for text that is no complete result of this schema, for files without a common
// timed cell, and, unless the options go across, for any difference.
absl::StatusOr<Comparison> CompareResults(const Json& before, const Json& after,
                                          const CompareOptions& options);

}  // namespace tp2::bench
