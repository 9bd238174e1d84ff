// The only place that reads environment variables. They set defaults of flags; nothing else listens
// to them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libcore/config/settings.h"

namespace tp2::config {

// A value for every spec whose variable is set and not empty. Booleans may be written 0 and 1 here.
// CUDA_VISIBLE_DEVICES counts only when it names UUIDs: ordinals are between CUDA and whoever set
// them.
std::vector<GivenValue> ReadEnvironment(std::span<const SettingSpec> specs);

// A variable that is not ours and sets nothing, but changes what works: CUDA_LAUNCH_BLOCKING.
std::optional<std::string> ReadVariable(const char* name);

}  // namespace tp2::config
