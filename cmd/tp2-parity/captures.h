// tp2-parity run, inspect and explain: captures.
#pragma once

#include "absl/status/statusor.h"
#include "cmd/tp2-parity/flags.h"

namespace tp2::parity {

// True when every difference from the capture's engine drafts is explained.
absl::StatusOr<bool> CaptureIsExplained(const Flags& flags);

// True, or why the folder is no capture.
absl::StatusOr<bool> InspectCapture(const Flags& flags);

// Prints the block; the verdict of the whole capture is CaptureIsExplained's.
absl::StatusOr<bool> ExplainBlock(const Flags& flags);

}  // namespace tp2::parity
