// Command line of tp2-parity.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tp2::parity {

enum class Command { kSelf, kAudit, kShards, kRun, kInspect, kExplain };

struct Flags {
  Command command = Command::kSelf;
  std::string model_dir;
  std::vector<std::string> modes = {"one-card"};
  std::string backend = "auto";
  std::vector<std::string> device_uuids;  // by rank; empty: the first usable cards
  int rounds = 41;
  uint64_t seed = 1;
  bool runs_grid = false;  // every graph key instead of random rounds
  bool is_eager = false;   // CUDA without graphs
  int threads = 0;
  std::string kernels_path;  // empty: safe defaults
  int tp = 2;
  int audit_every = 1;          // rounds
  std::string planted;          // tensor of which an audit changes one bit; empty: none
  std::string expected_digest;  // empty: modes are only compared with each other
  // Captures.
  std::string capture_dir;
  std::string mode = "one-card";
  std::string window;    // empty: every window that the capture has
  std::string mutation;  // empty: none
  int64_t max_rounds = 0;
  int64_t round = 0;
  int block = 0;
  std::string json_path;  // empty: none; "-": stdout
  std::string junit_path;
  bool may_replace = false;
};

// A value: end with it. Bad flags are reported on stderr.
std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags);

}  // namespace tp2::parity
