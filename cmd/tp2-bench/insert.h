// tp2-bench insert: the context insert by number of rows.
#pragma once

#include "absl/status/statusor.h"
#include "cmd/tp2-bench/flags.h"

namespace tp2::bench {

// The exit code.
absl::StatusOr<int> RunInserts(const Flags& flags);

}  // namespace tp2::bench
