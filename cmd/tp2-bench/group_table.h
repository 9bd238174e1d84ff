// Kernel time per group of a grid's cells, measured by a second, instrumented drafter, beside the
// plain drafter's time.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cmd/tp2-bench/flags.h"
#include "cmd/tp2-bench/session.h"
#include "libcore/bench/cells.h"

namespace tp2::bench {

// Prints three tables (microseconds, bytes, percent of the copy bandwidth) and adds "groups" to
// those cells of the session's result that have been measured.
absl::Status AddGroups(const Flags& flags, const std::string& mode, const std::vector<Cell>& cells,
                       Session& session);

}  // namespace tp2::bench
