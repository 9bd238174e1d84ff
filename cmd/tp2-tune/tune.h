// tp2-tune run.
#pragma once

#include "absl/status/statusor.h"
#include "cmd/tp2-tune/flags.h"

namespace tp2::tune {

// Exit code: 1 when drafts differ, 5 when the card was throttled; nothing is written then.
absl::StatusOr<int> TuneCards(const Flags& flags);

}  // namespace tp2::tune
