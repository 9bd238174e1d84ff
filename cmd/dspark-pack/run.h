// The three commands of dspark-pack.
#pragma once

#include "cmd/dspark-pack/flags.h"

namespace tp2::pack {

// Returns the exit code; results go to stdout, errors to stderr.
int Run(const Flags& flags);

}  // namespace tp2::pack
