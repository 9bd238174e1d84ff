// A few rounds for people to look at.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cmd/dspark-selftest/twin.h"

namespace tp2::selftest {

// One slot; every round keeps some of the last drafts, as an engine would, and drafts again.
absl::StatusOr<std::string> RenderRounds(Twin* twin, int rounds, uint64_t seed);

}  // namespace tp2::selftest
