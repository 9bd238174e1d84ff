// Command line of tp2-bench.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cmd/tp2-bench/collectives_flags.h"
#include "libcore/bench/cells.h"
#include "libcore/model/drafter_config.h"

namespace tp2::bench {

enum class Command { kGrid, kInsert, kMemory, kList, kCompare, kDecide, kCollectives };

struct Flags {
  Command command = Command::kList;
  std::string command_name;       // "one-card", "solo", ...
  std::vector<std::string> argv;  // as given, without the program
  std::string model_dir;
  // grid and insert
  std::vector<std::string> modes;  // names of drafter/modes.h, one engine each
  std::string backend = "auto";
  std::vector<std::string> device_uuids;  // by rank; empty: the first usable cards
  std::vector<int> requests = {1, 2, 3, 4};
  std::vector<int> n_out = {4, 5};
  int insert_rows = 0;
  ContextOptions context;
  std::vector<int> rows = {1, 2, 4, 6, 8, 16, 20, 32, 64, 128};
  int warmup = 20;
  int replays = 300;
  int threads = 0;
  bool is_eager = false;
  bool is_cold_l2 = false;
  bool has_groups = false;
  bool wants_margins = false;
  bool has_pair = false;
  double max_mad_pct = 2;
  std::string nvml_library;
  std::string kernels_path;  // empty: safe defaults
  // memory
  bool is_config_only = false;
  int64_t max_positions = kDefaultModelLength;
  int cached_rows = 8192;
  // compare; decide: before_path is the result
  std::string before_path, after_path;
  std::string cost_path;
  double max_regression_pct = 3;
  bool goes_across = false;

  std::string json_path;  // empty: table only; "-": JSON on stdout and no table
  CollectivesFlags collectives;
};

// A value: end with it. Bad flags are reported on stderr.
std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags);

}  // namespace tp2::bench
