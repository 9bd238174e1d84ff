// Cards that a plan may be made for on a machine that has none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/tuning/kernel_table.h"

namespace tp2::tune {

std::vector<std::string> KnownCardFlags();  // {"h200", "rtx3090"}
std::string KnownCardNames();               // "h200 or rtx3090"
// The name must be one of them.
tuning::CardKind KnownCard(const std::string& name);

// The card that `name` says, else this machine's first of `device_uuids`. Errors: kUnavailable
// without both.
absl::StatusOr<tuning::CardKind> FindCard(const std::string& name,
                                          const std::vector<std::string>& device_uuids);

}  // namespace tp2::tune
