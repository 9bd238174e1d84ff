// Exit codes of every tool except run-owned, which follows coreutils' timeout.
#pragma once

#include "absl/status/status.h"

namespace tp2 {

enum ExitCode : int {
  kExitOk = 0,           // done, all checks passed
  kExitCheckFailed = 1,  // ran, but a check failed
  kExitUsage = 2,        // bad flag, bad file content, contradictory options
  kExitEnvironment = 3,  // no suitable GPU, port taken, lock held
  kExitDevice = 4,       // device fault or poisoned pair: restart the process
  kExitMeasurement = 5,  // measurement refused
  kExitInternal = 6,     // a bug of ours
};

// kInvalidArgument, kOutOfRange, kFailedPrecondition, kDataLoss, kNotFound, kUnimplemented ->
// usage; kUnavailable, kResourceExhausted, kPermissionDenied -> environment; kAborted -> device;
// the rest -> internal.
ExitCode ExitCodeOf(const absl::Status& status);

// Prints `tool: error: message` on stderr and returns the code; kExitOk prints nothing.
int ReportStatus(const char* tool, const absl::Status& status);

}  // namespace tp2
