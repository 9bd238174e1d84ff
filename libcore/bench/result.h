// The JSON that tp2-bench writes, schema tp2-bench/1: one object per file with tool, command,
// conditions, model and cells. A cell is an object with an id, a state, the name of its primary
// series and the series themselves; units stand in names, what is absent is null.
// cmd/tp2-bench/README.md lists the keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/base/json.h"
#include "libcore/bench/cells.h"
#include "libcore/bench/group_bytes.h"
#include "libcore/bench/groups.h"
#include "libcore/drafter/step_engine.h"
#include "libcore/telemetry/sample.h"
#include "libcore/tuning/table_use.h"

namespace tp2::bench {

inline constexpr char kSchema[] = "tp2-bench/1";

// {"count", "p50", "p99", "min", "max", "mad"}, microseconds, nearest rank; null for no values.
Json SeriesUs(const std::vector<int64_t>& values_ns);

// Without cells and conditions: schema, tool, command, argv, complete = false.
Json NewResult(const std::string& command, const std::vector<std::string>& argv);

// A file of at most 16 MiB as JSON. Errors: ReadTextFile's, ParseJson's.
absl::StatusOr<Json> ReadResult(const std::string& path);

// What identifies the drafter: two results of different models cannot be compared.
Json ModelJson(const EngineInfo& info);

// {"digest", "found", "missing"}; null without a table.
Json KernelTableJson(const tuning::TableUse& use);

enum class CellState { kOk, kNoisy, kThrottled };
const char* CellStateName(CellState state);

// Whether the card gave a reason of kThrottleReasons.
bool IsThrottled(const std::optional<telemetry::CardSample>& now);

// Throttled when the card gave a reason of kThrottleReasons right after the cell; noisy when the
// median deviation is above `max_mad_pct` percent of the median.
CellState JudgeCell(const std::vector<int64_t>& primary_ns, double max_mad_pct,
                    const std::optional<telemetry::CardSample>& after);

// Power, clocks, temperature and reasons right after a cell; null without a reading.
Json AfterJson(const std::optional<telemetry::CardSample>& after);

// Kernel time of the groups of one cell, per timed STEP.
struct CellGroups {
  PerGroup<std::vector<int64_t>> ns;
  std::vector<int64_t> sum_ns;
  std::vector<int64_t> device_ns;  // of the same instrumented STEPs; host wall on the CPU
  int mark_count = 0;
  PerGroup<int64_t> bytes = {};
  std::vector<double> distinct_experts;
};

// {"experts": {"us", "bytes", "gb_per_s", "copy_pct"}, ..., "sum_us", "instrumented_us", ...}.
Json GroupsJson(const CellGroups& groups, double copy_gb_per_s);

}  // namespace tp2::bench
