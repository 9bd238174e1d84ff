// tp2-tune plan.
#pragma once

#include "absl/status/statusor.h"
#include "cmd/tp2-tune/flags.h"
#include "libcore/drafter/launch_list.h"

namespace tp2::tune {

// The launches of the flags' model; `default_tps` without --tp.
absl::StatusOr<LaunchList> LaunchesOf(const Flags& flags, const std::vector<int>& default_tps);

// Exit code.
absl::StatusOr<int> PrintPlan(const Flags& flags);

}  // namespace tp2::tune
