// Command line of run-owned.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cmd/run-owned/options.h"
#include "libcore/config/settings.h"

namespace tp2::owned {

struct Flags {
  Mode mode = Mode::kSolo;
  bool is_dry_run = false;
  bool only_prints_config = false;
  std::vector<config::GivenValue> given;
  std::vector<std::string> command;  // everything after the first --
};

// A value: end with it. Bad flags are reported on stderr.
std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags);

}  // namespace tp2::owned
