// Flags of tp2-bench collectives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tp2::bench {

struct CollectivesFlags {
  std::vector<std::string> gpus;      // UUID prefixes by rank; empty: the first two cards
  std::string protocol = "both";      // line, ack or both
  std::string nccl = "libnccl.so.2";  // empty: without NCCL
  std::string nccl_protocol;          // LL, LL128 or Simple; empty: its own choice
  std::string nvml_library;           // empty: the driver's
  bool is_single_card = false;
  bool is_sweep = false;  // all grids instead of the default one
  bool is_quick = false;  // the rows of a STEP only
  int replays = 300;
  int warmup = 20;
  std::string json_path;
  bool may_replace = false;
};

}  // namespace tp2::bench
