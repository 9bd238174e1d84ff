// What dspark-serve can be told: the table of its settings and their typed form.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/config/settings.h"

namespace tp2::config {

struct WorkerConfig {
  std::string model_dir;
  int tp = 1;
  std::vector<std::string> gpus;  // UUIDs in rank order
  std::string backend;
  std::string listen;
  std::string rdma;                          // "auto", "off" or "require"
  std::vector<std::string> allowed_clients;  // networks; empty: loopback only
  std::string secret_file;                   // empty: clients prove nothing
  int64_t max_connections = 0;
  int64_t hello_ms = 0;
  int64_t idle_ms = 0;
  int64_t frame_ms = 0;
  int64_t spin_ms = 0;
  int spin_threads = 0;  // 0: by the number of cores
  std::string admin;     // empty: no admin port
  int64_t canary_ms = 0;
  std::string nvml_library;  // of the cards' state; empty: the driver's own; "off": none
  std::string trace_path;    // empty: no trace is written
  int64_t max_model_len = 0;
  int64_t timeout_ms = 0;    // longest wait of a collective
  bool fuse_pairs = true;    // products of one input share a launch: time only
  std::string kernels_path;  // tp2_kernels.json; empty: safe defaults
  int max_consecutive_failures = 0;
  int threads = 0;
  int64_t drain_ms = 0;
  std::string log_level;
  std::string record_dir;  // empty: no capture is written
};

std::span<const SettingSpec> WorkerSettings();

// Cross-field rules included. Errors: kInvalidArgument.
absl::StatusOr<WorkerConfig> ToWorkerConfig(const Settings& settings);

}  // namespace tp2::config
