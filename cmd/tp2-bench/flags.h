// Command line of tp2-bench.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tp2::bench {

struct Flags {
  std::string mode = "one-card";  // the subcommand
  std::string model_dir;
  std::string backend = "auto";
  std::string device_uuid;
  std::vector<int> requests = {1, 2, 3, 4};
  std::vector<int> n_out = {4, 5};
  int insert_rows = 0;
  int warmup = 20;
  int replays = 300;
  bool is_eager = false;
};

// A value: end with it. Bad flags are reported on stderr.
std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags);

}  // namespace tp2::bench
