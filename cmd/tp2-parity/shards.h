// tp2-parity shards: the cut against the whole checkpoint.
#pragma once

#include "absl/status/statusor.h"
#include "cmd/tp2-parity/flags.h"

namespace tp2::parity {

// True when every weight of every rank is its slice.
absl::StatusOr<bool> ShardsAreEqual(const Flags& flags);

}  // namespace tp2::parity
