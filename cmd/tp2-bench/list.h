// tp2-bench list: what can be measured, and on which cards.
#pragma once

#include "absl/status/status.h"

namespace tp2::bench {

absl::Status PrintList();

}  // namespace tp2::bench
