// Bridge between std::string_view and Debian's Abseil, which is built with a string_view type of
// its own.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/string_view.h"

namespace tp2 {

inline std::string_view ToStd(absl::string_view text) { return {text.data(), text.size()}; }
inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace tp2
