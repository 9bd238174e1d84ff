// Command line of dspark-serve.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libcore/config/settings.h"

namespace tp2::serve {

struct Flags {
  std::string config_path;  // empty: no file
  bool only_checks_config = false;
  bool only_prints_config = false;
  std::vector<config::GivenValue> given;  // settings named on the command line
};

// A value: end with it. Bad flags are reported on stderr.
std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags);

}  // namespace tp2::serve
