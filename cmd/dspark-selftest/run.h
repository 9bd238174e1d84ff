// What dspark-selftest does.
#pragma once

#include "cmd/dspark-selftest/flags.h"

namespace tp2::selftest {

int Run(const Flags& flags);

}  // namespace tp2::selftest
