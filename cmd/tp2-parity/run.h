// What tp2-parity does.
#pragma once

#include "cmd/tp2-parity/flags.h"

namespace tp2::parity {

int Run(const Flags& flags);

}  // namespace tp2::parity
