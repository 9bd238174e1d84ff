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
};

inline constexpr int64_t kMaxPositionsLimit = 1048576;

// Errors: those of Checkpoint::Open; kInvalidArgument for an unknown mode or backend or a length
// out of range; kUnimplemented for the CUDA backend in a build without it.
absl::StatusOr<std::unique_ptr<StepEngine>> MakeEngine(const EngineOptions& options);

}  // namespace tp2
