// tp2-bench memory: the report as a table or as JSON.
#pragma once

#include "absl/status/status.h"
#include "cmd/tp2-bench/flags.h"

namespace tp2::bench {

absl::Status PrintMemory(const Flags& flags);

}  // namespace tp2::bench
