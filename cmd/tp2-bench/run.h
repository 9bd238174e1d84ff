// What tp2-bench does.
#pragma once

#include "cmd/tp2-bench/flags.h"

namespace tp2::bench {

int Run(const Flags& flags);

}  // namespace tp2::bench
