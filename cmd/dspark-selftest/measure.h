// The subcommands with figures: faults, latency, fuzz, load, soak.
#pragma once

#include "absl/status/statusor.h"
#include "cmd/dspark-selftest/checks.h"
#include "cmd/dspark-selftest/flags.h"

namespace tp2::selftest {

// True when the worker did what it must. Prints the figures, and writes them to flags.json_path.
absl::StatusOr<bool> RunMeasurement(const Flags& flags, const Connector& connect,
                                    StepEngine* engine);

}  // namespace tp2::selftest
