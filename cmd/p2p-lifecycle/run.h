// What p2p-lifecycle does.
#pragma once

#include "cmd/p2p-lifecycle/flags.h"

namespace tp2::lifecycle {

int Run(const Flags& flags);

}  // namespace tp2::lifecycle
