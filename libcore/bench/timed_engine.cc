// The CPU instantiations of the instrumented drafter.
#include "libcore/bench/timed_engine.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/timed_ops.h"
#include "libcore/drafter/cpu_drafter-inl.h"
#include "libcore/drafter/solo_ops.h"

namespace tp2::bench {
namespace {

template <class Ops>
TimedEngine MakeTimedCpu(EngineParts parts, const EngineOptions& options) {
  TimedEngine timed;
  timed.clock = std::make_unique<HostGroupClock>(std::make_shared<SteadyClock>());
  EngineInfo info = CpuEngineInfo(*parts.checkpoint, parts.plans,
                                  {.mode = options.mode, .max_positions = options.max_positions});
  auto inner = std::make_unique<Ops>(info.config, info.tp, options.thread_count);
  auto ops = std::make_unique<TimedOps<Ops>>(std::move(inner), timed.clock.get());
  timed.engine = std::make_unique<Drafter<TimedOps<Ops>>>(
      std::move(info), std::move(parts.checkpoint), std::move(ops), parts.plans);
  return timed;
}

}  // namespace

absl::StatusOr<TimedEngine> MakeTimedEngine(const EngineOptions& options) {
  TP2_ASSIGN_OR_RETURN(const std::string backend, ResolveBackend(options));
  TP2_ASSIGN_OR_RETURN(EngineParts parts, OpenEngineParts(options));
  const Collective collective = parts.mode.collective;
  if (collective == Collective::kHostPair) {
    return MakeError(absl::StatusCode::kUnimplemented,
                     {.what = "time per group",
                      .expected = "a mode with one stream of work",
                      .got = options.mode,
                      .where = "",
                      .next = "use one-card, solo or emulated"});
  }
  if (backend == "cuda") return MakeTimedCudaEngine(std::move(parts), options);
  if (collective == Collective::kStandIn) return MakeTimedCpu<SoloOps>(std::move(parts), options);
  return MakeTimedCpu<CpuOps<Bf16>>(std::move(parts), options);
}

absl::StatusOr<CellGroups> RunGroups(TimedEngine& timed, const Cell& cell,
                                     const RunOptions& options) {
  CellGroups groups;
  absl::Status status = absl::OkStatus();
  RunOptions with_reading = options;
  with_reading.after_each = [&](int done) {
    const absl::StatusOr<GroupTimes> times = timed.clock->Read(timed.clock->latest_key());
    if (status.ok()) status = times.status();
    if (!times.ok()) return;
    for (int group = 0; group < kGroupCount; ++group) {
      groups.ns[group].push_back(times->ns[group]);
    }
    groups.sum_ns.push_back(std::accumulate(times->ns.begin(), times->ns.end(), int64_t{0}));
    groups.mark_count = times->mark_count;
    if (options.after_each) options.after_each(done);
  };
  TP2_ASSIGN_OR_RETURN(const CellTimes times, RunCell(*timed.engine, cell, with_reading));
  TP2_RETURN_IF_ERROR(status);
  groups.device_ns = times.draft_device_ns.empty() ? times.host_ns : times.draft_device_ns;
  return groups;
}

}  // namespace tp2::bench
