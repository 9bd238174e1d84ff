// Opens a checkpoint and builds the drafter for it: the one entry point of servers and tools.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "libcore/drafter/step_engine.h"

namespace tp2 {

struct EngineOptions {
  std::string model_dir;
  std::string backend = "auto";    // "auto", "cpu" or "cuda"
  std::string mode = "one-card";   // a name of modes.h
  int64_t max_positions = 327680;  // longest sequence, --max-model-len
  int thread_count = 0;            // of the CPU op set; 0 means one per hardware thread
  std::string device_uuid = {};    // of the CUDA op set; empty means the first usable card
  bool uses_graphs = true;         // of the CUDA op set; the bits are the same without
};

inline constexpr int64_t kMaxPositionsLimit = 1048576;

// Errors: those of Checkpoint::Open; kInvalidArgument for an unknown mode or backend or a length
// out of range; kUnavailable when backend cuda finds no usable card or is not built.
absl::StatusOr<std::unique_ptr<StepEngine>> MakeEngine(const EngineOptions& options);

}  // namespace tp2
