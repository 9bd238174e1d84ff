// tp2-bench collectives: all-reduce, exchanges and the closing exchange on two cards, beside NCCL.
#pragma once

#include "absl/status/status.h"
#include "cmd/tp2-bench/collectives_flags.h"

namespace tp2::bench {

// Errors: kUnavailable without two cards or without the CUDA half in this build.
absl::Status PrintCollectives(const CollectivesFlags& flags);

}  // namespace tp2::bench
