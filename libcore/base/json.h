// Strict JSON for everything read from outside: bounded size and depth, duplicate keys refused.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace tp2 {

using Json = nlohmann::json;

struct JsonLimits {
  size_t max_bytes = 64 << 20;
  int max_depth = 32;
};

// `where` names the source in errors (a path). Errors: kInvalidArgument, with the byte offset.
absl::StatusOr<Json> ParseJson(std::string_view text, const std::string& where,
                               const JsonLimits& limits = {});

// A JSON value as it should look inside a one-line error: at most 60 characters, no line breaks.
std::string ShortJson(const Json& value);

}  // namespace tp2
