// One case in a fresh process under a watchdog: a fault, a hang or a changed environment ends with
// that process.
#pragma once

#include <string>
#include <vector>

#include "cmd/p2p-lifecycle/cases.h"

namespace tp2::lifecycle {

// Runs this program with `arguments`. The result is the last line that the child prints; a child
// that says nothing, or does not end in time, has failed.
CaseResult RunInChild(const CaseInfo& info, const std::vector<std::string>& arguments);

}  // namespace tp2::lifecycle
