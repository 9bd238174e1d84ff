#include "libcore/drafter/make_engine.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/drafter/cpu_drafter.h"
#include "libcore/drafter/cuda_drafter.h"
#include "libcore/shard/shard_plan.h"

namespace tp2 {
namespace {

absl::Status BadOption(const std::string& what, const std::string& expected,
                       const std::string& got) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = what, .expected = expected, .got = got, .where = "", .next = ""});
}

absl::StatusOr<int> TpOfMode(const std::string& mode) {
  if (mode == "one-card") return 1;
  if (mode == "emulated") return 2;
  return BadOption("mode", "one-card or emulated", mode);
}

absl::Status CheckOptions(const EngineOptions& options) {
  if (options.backend != "auto" && options.backend != "cpu" && options.backend != "cuda") {
    return BadOption("backend", "auto, cpu or cuda", options.backend);
  }
  if (options.max_positions < 1 || options.max_positions > kMaxPositionsLimit) {
    return BadOption("max-model-len", absl::StrCat("1 to ", kMaxPositionsLimit),
                     absl::StrCat(options.max_positions));
  }
  return absl::OkStatus();
}

// auto: cuda when a usable card exists. Before the checkpoint is opened, so that a missing card is
// told at once.
absl::StatusOr<bool> UsesCuda(const EngineOptions& options) {
  if (options.backend == "cpu") return false;
  const absl::Status found = FindCudaDevice(options.device_uuid);
  if (options.backend == "cuda" && !found.ok()) return found;
  return found.ok();
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepEngine>> MakeEngine(const EngineOptions& options) {
  TP2_RETURN_IF_ERROR(CheckOptions(options));
  TP2_ASSIGN_OR_RETURN(const int tp, TpOfMode(options.mode));
  TP2_ASSIGN_OR_RETURN(const bool uses_cuda, UsesCuda(options));
  TP2_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(options.model_dir));
  std::vector<ShardPlan> plans;
  for (int rank = 0; rank < tp; ++rank) {
    TP2_ASSIGN_OR_RETURN(ShardPlan plan, MakeShardPlan(checkpoint->config(), tp, rank));
    plans.push_back(plan);
  }
  if (uses_cuda) {
    return MakeCudaDrafter(std::move(checkpoint), plans,
                           {.mode = options.mode,
                            .max_positions = options.max_positions,
                            .device_uuid = options.device_uuid,
                            .uses_graphs = options.uses_graphs});
  }
  CpuDrafterOptions cpu = {.mode = options.mode,
                           .max_positions = options.max_positions,
                           .thread_count = options.thread_count};
  return MakeCpuDrafter<CpuOps<Bf16>>(std::move(checkpoint), plans, cpu);
}

}  // namespace tp2
