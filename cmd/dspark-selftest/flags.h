// Command line of dspark-selftest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tp2::selftest {

enum class Command { kContract, kRounds, kFaults, kLatency, kFuzz, kLoad, kSoak };

struct Flags {
  Command command = Command::kContract;
  std::string server = "127.0.0.1:18627";
  std::string transport = "tcp";  // or "rdma"
  std::string model_dir;
  std::string backend = "auto";
  int threads = 0;
  int rounds = 0;  // 41 for contract, 8 for rounds
  int latency_rounds = 60;
  uint64_t seed = 1;
  int64_t frames = 1'000'000;  // fuzz
  int connections = 1'000;     // load
  int64_t seconds = 600;       // soak
  int worker_pid = 0;
  int64_t timeout_ms = 30'000;
  int64_t spin_ms = 0;      // how long a reply is polled for
  std::string json_path;    // empty: no file
  std::string secret_file;  // empty: the worker has none
  std::string record_dir;   // empty: no capture
};

// A value: end with it. Bad flags are reported on stderr.
std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags);

}  // namespace tp2::selftest
