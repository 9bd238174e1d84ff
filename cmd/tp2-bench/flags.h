// Command line of tp2-bench.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tp2::bench {

enum class Command { kMemory };

struct Flags {
  Command command = Command::kMemory;
  std::string model_dir;
  bool is_config_only = false;
  int64_t max_positions = 327680;
  int cached_rows = 8192;
  std::string json_path;  // empty: table; "-": JSON on stdout
  bool may_replace = false;
};

// A value: end with it. Bad flags are reported on stderr.
std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags);

}  // namespace tp2::bench
