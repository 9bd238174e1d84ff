#include "libcore/config/env.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string>

namespace tp2::config {

std::vector<GivenValue> ReadEnvironment(std::span<const SettingSpec> specs) {
  std::vector<GivenValue> values;
  for (const SettingSpec& spec : specs) {
    const std::string variable = spec.environment;
    if (variable.empty()) continue;
    const char* raw = std::getenv(variable.c_str());
    if (raw == nullptr || *raw == '\0') continue;
    std::string text = raw;
    if (spec.kind == SettingKind::kGpuList && text.rfind("GPU-", 0) != 0) continue;
    if (spec.kind == SettingKind::kBoolean && (text == "0" || text == "1")) {
      text = text == "1" ? "true" : "false";
    }
    values.push_back(
        {.name = spec.name, .text = text, .origin = Origin::kEnvironment, .where = variable});
  }
  return values;
}

ServiceEnvironment ReadServiceEnvironment() {
  const auto read = [](const char* variable) {
    const char* raw = std::getenv(variable);
    return std::string(raw == nullptr ? "" : raw);
  };
  ServiceEnvironment environment{.notify_socket = read("NOTIFY_SOCKET")};
  const std::string pid = read("WATCHDOG_PID");
  const std::string watchdog = read("WATCHDOG_USEC");
  if (pid.empty() || pid == std::to_string(::getpid())) {
    (void)std::from_chars(watchdog.data(), watchdog.data() + watchdog.size(),
                          environment.watchdog_us);
  }
  return environment;
}

std::optional<std::string> ReadVariable(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  return text;
}

}  // namespace tp2::config
