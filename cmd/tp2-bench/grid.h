// tp2-bench one-card and emulated: the grid of requests and n_out.
#pragma once

#include "absl/status/status.h"
#include "cmd/tp2-bench/flags.h"

namespace tp2::bench {

absl::Status PrintGrid(const Flags& flags);

}  // namespace tp2::bench
