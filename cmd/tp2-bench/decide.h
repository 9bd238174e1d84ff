// tp2-bench decide: is a second card worth it?
#pragma once

#include "absl/status/status.h"
#include "cmd/tp2-bench/flags.h"

namespace tp2::bench {

// Prints the decision table. Errors: of the two files.
absl::Status PrintDecision(const Flags& flags);

}  // namespace tp2::bench
