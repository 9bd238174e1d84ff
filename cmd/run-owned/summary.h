// The summary of a run (schema run-owned/1) and its last line on standard error.
#pragma once

#include <string>

#include "cmd/run-owned/monitor.h"
#include "cmd/run-owned/options.h"
#include "libcore/base/json.h"

namespace tp2::owned {

// `log_failure`: why log or telemetry file are incomplete; empty when they are whole. The samples
// that the telemetry file lacks are then in the summary.
Json Summarize(const Options& options, const Cards& cards, const RunRecord& record,
               const std::string& log_failure);

// "run-owned: child exit 0 after 3m12s; peak 702 W; permit held; log run.log"
std::string LastLine(const Options& options, const RunRecord& record);

}  // namespace tp2::owned
