// Command line of dspark-pack.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tp2::pack {

enum class Command { kSynth, kInspect, kVerify };

struct Flags {
  Command command = Command::kInspect;
  std::string model_dir;  // inspect and verify
  // synth
  std::string shape;
  uint64_t seed = 1;
  std::string out_dir;
  bool may_replace = false;
  bool is_dry_run = false;
  int threads = 0;
  bool is_quiet = false;
  // inspect
  bool wants_every_tensor = false;
  std::string json_path;  // "-" is stdout
  // verify
  std::string expected_identity;  // empty: any
};

// A value: end with it. Bad flags are reported on stderr.
std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags);

}  // namespace tp2::pack
