// Command line of tp2-tune.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tp2::tune {

enum class Command { kPlan, kRun, kCheck, kShow, kDiff };

struct Flags {
  Command command = Command::kPlan;
  std::string model_dir;
  bool is_config_only = false;
  std::vector<int> tps;                   // numbers of ranks; empty: the command's own
  std::string card;                       // a name of known_cards.h; empty: this machine's
  std::vector<std::string> device_uuids;  // by rank
  std::string nvml_library;
  std::string only;  // a key or its first parts; empty: all
  int rounds = 3;
  int replays = 10;
  bool may_merge = false;
  std::string table_path;  // run: what is written; check, show: what is read
  std::string other_path;  // diff: the new one
  std::string json_path;   // plan; empty: none
};

// A value: end with it. Bad flags are reported on stderr.
std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags);

}  // namespace tp2::tune
