// What dspark-serve does.
#pragma once

#include "cmd/dspark-serve/flags.h"

namespace tp2::serve {

int Run(const Flags& flags);

}  // namespace tp2::serve
