// Opens a checkpoint and builds the drafter for it: the one entry point of servers and tools.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/drafter/modes.h"
#include "libcore/drafter/step_engine.h"
#include "libcore/shard/shard_plan.h"
#include "libcore/tuning/kernel_choices.h"

namespace tp2 {

struct EngineOptions {
  std::string model_dir;
  std::string backend = "auto";                 // "auto", "cpu" or "cuda"
  std::string mode = "one-card";                // a name of modes.h
  int64_t max_positions = kDefaultModelLength;  // longest sequence, --max-model-len
  int thread_count = 0;  // of the CPU op set; 0 means one per hardware thread
  // Of the CUDA op set.
  std::vector<std::string> device_uuids = {};  // by rank; empty means the first usable cards
  bool uses_graphs = true;                     // the bits are the same without
  int64_t timeout_ms = 2000;                   // longest wait of a pair's collective
  // tp2_kernels.json; empty: safe defaults. Checked by every backend, used by cuda.
  std::string kernels_path = {};
  std::shared_ptr<tuning::KernelChoices> kernels = nullptr;  // instead of the file: a table in use
  bool joins_products = true;  // of one input, in one launch: time only, never bits
};

// "cpu" or "cuda": what `options` get on this machine. Before any checkpoint is opened, so that a
// missing card is told at once. Errors: kInvalidArgument for options that no engine can have;
// kUnavailable when backend cuda finds no usable card or is not built; kUnimplemented when the mode
// is not built for it.
absl::StatusOr<std::string> ResolveBackend(const EngineOptions& options);

// What every engine is made of: for tools that build a drafter over an op set of their own.
struct EngineParts {
  Mode mode;
  std::unique_ptr<Checkpoint> checkpoint;
  std::vector<ShardPlan> plans;  // of the active ranks
};

// Null for an empty path. Errors: KernelChoices::Load's.
absl::StatusOr<std::shared_ptr<tuning::KernelChoices>> LoadKernels(const std::string& path);

// Errors: kInvalidArgument for an unknown mode; Checkpoint::Open's, MakeShardPlan's,
// coll::CheckTokenRanges'.
absl::StatusOr<EngineParts> OpenEngineParts(const EngineOptions& options);

// Errors: those of Checkpoint::Open; kInvalidArgument for an unknown mode or backend, a length out
// of range or a bad kernel table; kUnavailable when backend cuda finds no usable card or is not
// built, and for a kernel table of another card or build.
absl::StatusOr<std::unique_ptr<StepEngine>> MakeEngine(const EngineOptions& options);

}  // namespace tp2
