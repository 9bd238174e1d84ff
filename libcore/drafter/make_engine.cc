#include "libcore/drafter/make_engine.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/collectives/state_layout.h"
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
  if (options.max_positions < 1 || options.max_positions > kMaxModelLength) {
    return BadOption("max-model-len", absl::StrCat("1 to ", kMaxModelLength),
                     absl::StrCat(options.max_positions));
  }
  return absl::OkStatus();
}

// What the collectives want of the cut, before the weights are loaded, which takes long.
absl::Status CheckParts(const EngineParts& parts) {
  const Collective collective = parts.mode.collective;
  if (collective != Collective::kHostPair && collective != Collective::kPair) {
    return absl::OkStatus();
  }
  std::vector<coll::TokenRange> tokens;
  for (const ShardPlan& plan : parts.plans) tokens.push_back({plan.vocab.begin, plan.vocab.end});
  return coll::CheckTokenRanges(tokens);
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
    case Collective::kPair:  // never on the CPU: ResolveBackend
      break;
  }
  return MakeCpuDrafter<CpuOps<Bf16>>(std::move(checkpoint), plans, options);
}

}  // namespace

// auto: cuda when a usable card exists.
absl::StatusOr<std::string> ResolveBackend(const EngineOptions& options) {
  TP2_RETURN_IF_ERROR(CheckOptions(options));
  TP2_ASSIGN_OR_RETURN(const Mode mode, FindMode(options.mode));
  if (options.backend == "cpu") {
    if (mode.collective != Collective::kPair) return "cpu";
    return MakeError(absl::StatusCode::kUnimplemented,
                     {.what = "mode pair",
                      .expected = "two cards",
                      .got = "backend cpu",
                      .where = "",
                      .next = "use mode host-pair: the same protocol and bits on the CPU"});
  }
  if (mode.collective == Collective::kHostPair) {
    if (options.backend == "auto") return "cpu";
    return MakeError(absl::StatusCode::kUnimplemented,
                     {.what = absl::StrCat("mode ", options.mode),
                      .expected = "backend cpu",
                      .got = "cuda, where it is not built",
                      .where = "",
                      .next = "use --backend cpu or another mode"});
  }
  const bool is_pair = mode.collective == Collective::kPair;
  const absl::Status found = FindCudaDevices(options.device_uuids, is_pair ? 2 : 1);
  if (found.ok()) return "cuda";
  if (is_pair || options.backend == "cuda") return found;
  return "cpu";
}

absl::StatusOr<std::shared_ptr<tuning::KernelChoices>> LoadKernels(const std::string& path) {
  if (path.empty()) return nullptr;
  return tuning::KernelChoices::Load(path);
}

absl::StatusOr<EngineParts> OpenEngineParts(const EngineOptions& options) {
  EngineParts parts;
  TP2_ASSIGN_OR_RETURN(parts.mode, FindMode(options.mode));
  TP2_ASSIGN_OR_RETURN(parts.checkpoint, Checkpoint::Open(options.model_dir));
  const int first = parts.mode.first_rank;
  for (int rank = first; rank < first + parts.mode.rank_count; ++rank) {
    TP2_ASSIGN_OR_RETURN(ShardPlan plan,
                         MakeShardPlan(parts.checkpoint->config(), parts.mode.tp, rank));
    parts.plans.push_back(plan);
  }
  TP2_RETURN_IF_ERROR(CheckParts(parts));
  return parts;
}

absl::StatusOr<std::unique_ptr<StepEngine>> MakeEngine(const EngineOptions& options) {
  TP2_ASSIGN_OR_RETURN(const std::string backend, ResolveBackend(options));
  // Before the checkpoint, which takes long.
  std::shared_ptr<tuning::KernelChoices> kernels = options.kernels;
  if (kernels == nullptr) {
    TP2_ASSIGN_OR_RETURN(kernels, LoadKernels(options.kernels_path));
  }
  TP2_ASSIGN_OR_RETURN(EngineParts parts, OpenEngineParts(options));
  if (backend == "cuda") {
    return MakeCudaDrafter(std::move(parts.checkpoint), parts.plans,
                           {.mode = options.mode,
                            .max_positions = options.max_positions,
                            .device_uuids = options.device_uuids,
                            .uses_graphs = options.uses_graphs,
                            .collective = parts.mode.collective,
                            .timeout_ms = options.timeout_ms,
                            .kernels = kernels,
                            .joins_products = options.joins_products});
  }
  return MakeCpuEngine(parts.mode, std::move(parts.checkpoint), parts.plans,
                       {.mode = options.mode,
                        .max_positions = options.max_positions,
                        .thread_count = options.thread_count});
}

}  // namespace tp2
