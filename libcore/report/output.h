// Where results go: standard output, and nothing else does.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace tp2 {

// Writes `text` and flushes. Errors: kResourceExhausted when the output takes no more (disk full).
// A reader that closed the pipe has seen what it wanted: no error, but the text is gone.
absl::Status PrintResult(std::string_view text);

}  // namespace tp2
