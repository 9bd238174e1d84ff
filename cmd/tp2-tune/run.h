// What each command of tp2-tune does.
#pragma once

#include "cmd/tp2-tune/flags.h"

namespace tp2::tune {

// The exit code; errors are reported on stderr.
int Run(const Flags& flags);

}  // namespace tp2::tune
