#include "libcore/bench/result.h"

#include "libcore/base/build_info.h"
#include "libcore/base/digest.h"
#include "libcore/base/file.h"
#include "libcore/base/percentile.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/conditions.h"

namespace tp2::bench {
namespace {

constexpr size_t kMaxResultBytes = 16 << 20;

double Us(int64_t ns) { return static_cast<double>(ns) / 1e3; }

Json OrNull(const std::optional<uint64_t>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

}  // namespace

Json SeriesUs(const std::vector<int64_t>& values_ns) {
  if (values_ns.empty()) return nullptr;
  return {{"count", values_ns.size()},
          {"p50", Us(NearestRank(values_ns, 50))},
          {"p99", Us(NearestRank(values_ns, 99))},
          {"min", Us(NearestRank(values_ns, 0))},
          {"max", Us(NearestRank(values_ns, 100))},
          {"mad", Us(MedianDeviation(values_ns))}};
}

Json NewResult(const std::string& command, const std::vector<std::string>& argv) {
  const BuildInfo build = GetBuildInfo();
  return {
      {"schema", kSchema},
      {"complete", false},
      {"command", command},
      {"argv", argv},
      {"tool", {{"version", build.version}, {"git", build.git_id}, {"compiler", build.compiler}}},
      {"conditions", nullptr},
      {"model", nullptr},
      {"cells", Json::array()}};
}

absl::StatusOr<Json> ReadResult(const std::string& path) {
  TP2_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxResultBytes));
  return ParseJson(text, path);
}

Json ModelJson(const EngineInfo& info) {
  return {{"arch", ArchName(info.config.arch)},
          {"stages", info.config.stages},
          {"dim", info.config.dim},
          {"vocab", info.config.vocab},
          {"identity", Hex(info.identity_digest)},
          {"kv_fake_quant", KvFakeQuantName(info.config.kv_fake_quant)},
          {"numerics_version", info.numerics_version},
          {"portable_bits", info.portable_bits}};
}

Json KernelTableJson(const tuning::TableUse& use) {
  if (use.digest.empty()) return nullptr;
  return {{"digest", use.digest}, {"found", use.found}, {"missing", use.missing}};
}

const char* CellStateName(CellState state) {
  switch (state) {
    case CellState::kOk:
      return "ok";
    case CellState::kNoisy:
      return "noisy";
    case CellState::kThrottled:
      break;
  }
  return "throttled";
}

bool IsThrottled(const std::optional<telemetry::CardSample>& now) {
  return now.has_value() && (now->clock_reasons.value_or(0) & kThrottleReasons) != 0;
}

CellState JudgeCell(const std::vector<int64_t>& primary_ns, double max_mad_pct,
                    const std::optional<telemetry::CardSample>& after) {
  if (IsThrottled(after)) return CellState::kThrottled;
  const auto mad = static_cast<double>(MedianDeviation(primary_ns));
  const auto median = static_cast<double>(NearestRank(primary_ns, 50));
  return mad > median * max_mad_pct / 100 ? CellState::kNoisy : CellState::kOk;
}

Json AfterJson(const std::optional<telemetry::CardSample>& after) {
  if (!after.has_value()) return nullptr;
  return {{"power_mw", OrNull(after->power_mw)},
          {"sm_clock_mhz", OrNull(after->sm_clock_mhz)},
          {"memory_clock_mhz", OrNull(after->memory_clock_mhz)},
          {"temperature_c", OrNull(after->temperature_c)},
          {"clock_reasons", OrNull(after->clock_reasons)},
          {"clock_reason_names", after->clock_reasons.has_value()
                                     ? Json(ClockReasonNames(*after->clock_reasons))
                                     : Json(nullptr)}};
}

Json GroupsJson(const CellGroups& groups, double copy_gb_per_s) {
  Json json = {{"sum_us", SeriesUs(groups.sum_ns)},
               {"instrumented_us", SeriesUs(groups.device_ns)},
               {"mark_count", groups.mark_count},
               {"distinct_experts_per_stage", groups.distinct_experts}};
  for (int group = 0; group < kGroupCount; ++group) {
    const auto p50_ns = static_cast<double>(NearestRank(groups.ns[group], 50));
    Json entry = {{"us", SeriesUs(groups.ns[group])},
                  {"bytes", groups.bytes[group]},
                  {"gb_per_s", nullptr},
                  {"copy_pct", nullptr}};
    if (p50_ns > 0) {
      const double gb_per_s = static_cast<double>(groups.bytes[group]) / p50_ns;
      entry["gb_per_s"] = gb_per_s;
      entry["copy_pct"] = 100 * gb_per_s / copy_gb_per_s;
    }
    json[kGroupNames[group]] = std::move(entry);
  }
  return json;
}

}  // namespace tp2::bench
