// The only place that reads environment variables. They set defaults of flags; nothing else listens
// to them.
#pragma once

#include <cstdint>
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

// What a service manager says to the process it starts (systemd's names: NOTIFY_SOCKET,
// WATCHDOG_USEC, WATCHDOG_PID). Empty and 0 without one, or when it means another process.
struct ServiceEnvironment {
  std::string notify_socket;
  int64_t watchdog_us = 0;
};
ServiceEnvironment ReadServiceEnvironment();

// A variable that is not ours and sets nothing, but changes what works: CUDA_LAUNCH_BLOCKING.
std::optional<std::string> ReadVariable(const char* name);

}  // namespace tp2::config
