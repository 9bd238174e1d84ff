// What every fuzz target of a parser asserts: a refusal is one line with a next step.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "libcore/base/check.h"

namespace tp2 {

inline void CheckRefusal(const absl::Status& status) {
  if (status.ok()) return;
  const std::string message(status.message());
  TP2_CHECK(message.find('\n') == std::string::npos);
  TP2_CHECK(message.find("; ") != std::string::npos);
  TP2_CHECK(message.size() < 4096);
  TP2_CHECK(status.code() == absl::StatusCode::kInvalidArgument ||
            status.code() == absl::StatusCode::kDataLoss);
}

}  // namespace tp2
