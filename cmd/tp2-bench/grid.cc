#include "cmd/tp2-bench/grid.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/percentile.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/cells.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/report/output.h"

namespace tp2::bench {
namespace {

double Ms(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

absl::Status PrintHeader(const EngineInfo& info, const Flags& flags) {
  std::string text = absl::StrFormat("# tp2-bench  mode %s  backend %s\n", info.mode, info.backend);
  for (const std::string& device : info.device_names)
    absl::StrAppend(&text, "# card     ", device, "\n");
  absl::StrAppend(&text, "# model    ", info.config.stages, " stages, vocab ", info.config.vocab,
                  ", numerics ", info.numerics_version, "\n");
  absl::StrAppend(&text, "# timing   ", flags.replays, " STEPs after ", flags.warmup,
                  ", host wall, nearest rank; full windows, ", flags.insert_rows,
                  " inserted rows, ", flags.is_eager ? "eager" : "graphs", "\n");
  absl::StrAppend(&text, "#  req n_out     STEP p50     STEP p99        mad\n",
                  "#  (n)   (n)         (ms)         (ms)       (ms)\n");
  return PrintResult(text);
}

absl::Status PrintCell(const Cell& cell, const CellTimes& times) {
  return PrintResult(absl::StrFormat("  %4d %5d   %10.4f   %10.4f %10.4f\n", cell.requests,
                                     cell.n_out, Ms(NearestRank(times.host_ns, 50)),
                                     Ms(NearestRank(times.host_ns, 99)),
                                     Ms(MedianDeviation(times.host_ns))));
}

}  // namespace

absl::Status PrintGrid(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const std::unique_ptr<StepEngine> engine,
                       MakeEngine({.model_dir = flags.model_dir,
                                   .backend = flags.backend,
                                   .mode = flags.mode,
                                   .device_uuid = flags.device_uuid,
                                   .uses_graphs = !flags.is_eager}));
  TP2_RETURN_IF_ERROR(PrintHeader(engine->info(), flags));
  for (const int requests : flags.requests) {
    for (const int n_out : flags.n_out) {
      TP2_RETURN_IF_ERROR(FillWindows(*engine));
      const Cell cell = {requests, n_out, flags.insert_rows};
      TP2_ASSIGN_OR_RETURN(
          const CellTimes times,
          RunCell(*engine, cell, {.warmup = flags.warmup, .replays = flags.replays}));
      TP2_RETURN_IF_ERROR(PrintCell(cell, times));
    }
  }
  return absl::OkStatus();
}

}  // namespace tp2::bench
