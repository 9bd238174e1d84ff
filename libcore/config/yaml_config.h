// Settings from a YAML file: one flat map of scalars, or a list of scalars for a list setting.
// Everything else YAML can say is refused with its line: unknown and duplicate keys, nested maps,
// anchors, aliases, tags, further documents. The only place that includes yaml-cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/config/settings.h"

namespace tp2::config {

// `where` names the file in errors. Keys are setting names with underscores for dashes.
// Errors: kInvalidArgument.
absl::StatusOr<std::vector<GivenValue>> ParseYamlSettings(std::string_view text,
                                                          const std::string& where,
                                                          std::span<const SettingSpec> specs);

// Reads a file of at most 1 MiB. Errors: kDataLoss when it cannot be read, else as above.
absl::StatusOr<std::vector<GivenValue>> ReadYamlSettings(const std::string& path,
                                                         std::span<const SettingSpec> specs);

}  // namespace tp2::config
