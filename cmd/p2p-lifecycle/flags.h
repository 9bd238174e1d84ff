// Command line of p2p-lifecycle.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cmd/p2p-lifecycle/cases.h"

namespace tp2::lifecycle {

struct Flags {
  CaseOptions options;
  bool is_list = false;
  bool is_full = false;
  bool is_quick = false;     // what happens without --full
  bool is_isolated = false;  // cases never share a process
  bool is_probe = false;
  bool is_child = false;  // run one case here and print its result as one JSON line
  std::vector<std::string> cases;
  std::string json_path;
  bool may_replace = false;
};

// A value: end with it. Bad flags are reported on stderr.
std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags);

}  // namespace tp2::lifecycle
