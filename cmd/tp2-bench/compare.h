// tp2-bench compare: two result files side by side.
#pragma once

#include "absl/status/statusor.h"
#include "cmd/tp2-bench/flags.h"

namespace tp2::bench {

// The exit code: 1 with a regression.
absl::StatusOr<int> PrintComparison(const Flags& flags);

}  // namespace tp2::bench
