// What run-owned does.
#pragma once

#include "cmd/run-owned/flags.h"

namespace tp2::owned {

int Run(const Flags& flags);

}  // namespace tp2::owned
