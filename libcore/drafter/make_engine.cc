#include "libcore/drafter/make_engine.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/drafter/cpu_drafter.h"
#include "libcore/drafter/cuda_drafter.h"
#include "libcore/drafter/host_pair_ops.h"
#include "libcore/drafter/modes.h"
#include "libcore/drafter/solo_ops.h"
#include "libcore/shard/shard_plan.h"

namespace tp2 {
namespace {

absl::Status BadOption(const std::string& what, const std::string& expected,
                       const std::string& got) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = what, .expected = expected, .got = got, .where = "", .next = ""});
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
absl::StatusOr<bool> UsesCuda(const EngineOptions& options, const Mode& mode) {
  if (options.backend == "cpu") return false;
  if (mode.collective == Collective::kHostPair) {
    if (options.backend == "auto") return false;
    return MakeError(absl::StatusCode::kUnimplemented,
                     {.what = absl::StrCat("mode ", options.mode),
                      .expected = "backend cpu",
                      .got = "cuda, where it is not built",
                      .where = "",
                      .next = "use --backend cpu or another mode"});
  }
  const absl::Status found = FindCudaDevice(options.device_uuid);
  if (options.backend == "cuda" && !found.ok()) return found;
  return found.ok();
}

std::unique_ptr<StepEngine> MakeCpuEngine(const Mode& mode, std::unique_ptr<Checkpoint> checkpoint,
                                          std::span<const ShardPlan> plans,
                                          const CpuDrafterOptions& options) {
  switch (mode.collective) {
    case Collective::kStandIn:
      return MakeCpuDrafter<SoloOps>(std::move(checkpoint), plans, options);
    case Collective::kHostPair:
      return MakeCpuDrafter<HostPairOps>(std::move(checkpoint), plans, options);
    case Collective::kReference:
      break;
  }
  return MakeCpuDrafter<CpuOps<Bf16>>(std::move(checkpoint), plans, options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepEngine>> MakeEngine(const EngineOptions& options) {
  TP2_RETURN_IF_ERROR(CheckOptions(options));
  TP2_ASSIGN_OR_RETURN(const Mode mode, FindMode(options.mode));
  TP2_ASSIGN_OR_RETURN(const bool uses_cuda, UsesCuda(options, mode));
  TP2_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(options.model_dir));
  std::vector<ShardPlan> plans;
  for (int rank = mode.first_rank; rank < mode.first_rank + mode.rank_count; ++rank) {
    TP2_ASSIGN_OR_RETURN(ShardPlan plan, MakeShardPlan(checkpoint->config(), mode.tp, rank));
    plans.push_back(plan);
  }
  if (uses_cuda) {
    return MakeCudaDrafter(std::move(checkpoint), plans,
                           {.mode = options.mode,
                            .max_positions = options.max_positions,
                            .device_uuid = options.device_uuid,
                            .uses_graphs = options.uses_graphs,
                            .stands_in = mode.collective == Collective::kStandIn});
  }
  return MakeCpuEngine(mode, std::move(checkpoint), plans,
                       {.mode = options.mode,
                        .max_positions = options.max_positions,
                        .thread_count = options.thread_count});
}

}  // namespace tp2
