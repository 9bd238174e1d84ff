// tp2-bench one-card, solo and emulated: the grid of requests and n_out.
#pragma once

#include "absl/status/statusor.h"
#include "cmd/tp2-bench/flags.h"

namespace tp2::bench {

// The exit code.
absl::StatusOr<int> RunGrid(const Flags& flags);

}  // namespace tp2::bench
