// Command line of tp2-bench.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cmd/tp2-bench/collectives_flags.h"

namespace tp2::bench {

enum class Command { kGrid, kMemory, kCollectives };

struct Flags {
  Command command = Command::kMemory;
  std::string model_dir;
  // grid
  std::string mode = "one-card";
  std::string backend = "auto";
  std::string device_uuid;
  std::vector<int> requests = {1, 2, 3, 4};
  std::vector<int> n_out = {4, 5};
  int insert_rows = 0;
  int warmup = 20;
  int replays = 300;
  bool is_eager = false;
  // memory
  bool is_config_only = false;
  int64_t max_positions = 327680;
  int cached_rows = 8192;
  std::string json_path;  // empty: table; "-": JSON on stdout
  bool may_replace = false;
  CollectivesFlags collectives;
};

// A value: end with it. Bad flags are reported on stderr.
std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags);

}  // namespace tp2::bench
