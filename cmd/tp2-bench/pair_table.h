// The specification's pair table: a pair against one card of the same run.
#pragma once

#include <string>

#include "libcore/base/json.h"

namespace tp2::bench {

// From a result's cells of modes one-card and pair; empty without both.
std::string PairTable(const Json& result);

}  // namespace tp2::bench
