#include "libcore/bench/decide.h"

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/result.h"
#include "libcore/config/settings.h"
#include "libcore/config/yaml_config.h"

namespace tp2::bench {
namespace {

using config::SettingKind;

constexpr config::SettingSpec kSettings[] = {
    {.name = "round-ms-1", .kind = SettingKind::kDecimal, .default_text = "0"},
    {.name = "round-ms-2", .kind = SettingKind::kDecimal, .default_text = "0"},
    {.name = "round-ms-3", .kind = SettingKind::kDecimal, .default_text = "0"},
    {.name = "round-ms-4", .kind = SettingKind::kDecimal, .default_text = "0"},
    {.name = "round-ms-5", .kind = SettingKind::kDecimal, .default_text = "0"},
    {.name = "remote-draft-ms", .kind = SettingKind::kDecimal, .default_text = "0"},
    {.name = "threshold-pct", .kind = SettingKind::kDecimal, .default_text = "5"},
};

absl::Status BadResult(const std::string& expected, const std::string& got) {
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      {.what = "result", .expected = expected, .got = got, .next = "run tp2-bench step --pair"});
}

std::optional<double> StepMs(const Json& cell) {
  if (!cell.is_object() || !cell.contains("step_host_us")) return std::nullopt;
  const Json& series = cell["step_host_us"];
  if (!series.is_object() || !series.contains("p50") || !series["p50"].is_number()) {
    return std::nullopt;
  }
  return series["p50"].get<double>() * 1e-3;
}

// One of the pair's cells and the same on one card.
bool AreTheSameStep(const Json& a, const Json& b) {
  for (const char* key : {"requests", "n_out", "insert_rows"}) {
    if (!a.contains(key) || !b.contains(key) || a[key] != b[key]) return false;
  }
  return true;
}

bool IsOf(const Json& cell, const char* mode) {
  return cell.is_object() && cell.contains("mode") && cell["mode"] == mode;
}

}  // namespace

absl::StatusOr<CostModel> ParseCostModel(std::string_view yaml, const std::string& where) {
  TP2_ASSIGN_OR_RETURN(const std::vector<config::GivenValue> given,
                       config::ParseYamlSettings(yaml, where, kSettings));
  TP2_ASSIGN_OR_RETURN(const config::Settings settings, config::Settings::Merge(kSettings, given));
  CostModel cost;
  bool has_round = false;
  for (int depth = 1; depth <= kBlockRows; ++depth) {
    const double round_ms = settings.Decimal(absl::StrCat("round-ms-", depth));
    if (round_ms <= 0) continue;
    cost.round_ms[static_cast<size_t>(depth)] = round_ms;
    has_round = true;
  }
  if (!has_round) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = "cost model",
                      .expected = "round_ms_N above 0 for some depth N, 1 to 5",
                      .got = "none",
                      .where = where});
  }
  cost.remote_draft_ms = settings.Decimal("remote-draft-ms");
  cost.threshold_pct = settings.Decimal("threshold-pct");
  return cost;
}

Decision Decide(const CostModel& cost, int requests, int n_out, double one_card_ms,
                double pair_ms) {
  Decision decision = {.requests = requests,
                       .n_out = n_out,
                       .one_card_ms = one_card_ms,
                       .pair_ms = pair_ms,
                       .remote_draft_ms = cost.remote_draft_ms - (one_card_ms - pair_ms)};
  const std::optional<double>& round_ms = cost.round_ms[static_cast<size_t>(n_out)];
  if (!round_ms.has_value()) return decision;
  decision.one_card_round_ms = *round_ms + cost.remote_draft_ms;
  decision.pair_round_ms = *decision.one_card_round_ms - decision.saved_ms();
  decision.more_rounds_pct = 100 * (*decision.one_card_round_ms / *decision.pair_round_ms - 1);
  decision.is_worth_it = *decision.more_rounds_pct >= cost.threshold_pct;
  return decision;
}

absl::StatusOr<std::vector<Decision>> DecideAll(const CostModel& cost, const Json& result) {
  if (!result.is_object() || result.value("schema", "") != kSchema || !result.contains("cells") ||
      !result["cells"].is_array()) {
    return BadResult(absl::StrCat("schema ", kSchema, " with cells"), "another JSON");
  }
  std::vector<Decision> decisions;
  for (const Json& pair : result["cells"]) {
    if (!IsOf(pair, "pair")) continue;
    for (const Json& one_card : result["cells"]) {
      if (!IsOf(one_card, "one-card") || !AreTheSameStep(one_card, pair)) continue;
      const std::optional<double> before = StepMs(one_card), after = StepMs(pair);
      const int n_out = pair["n_out"].is_number_integer() ? pair["n_out"].get<int>() : 0;
      if (!before.has_value() || !after.has_value() || n_out < 1 || n_out > kBlockRows ||
          !pair["requests"].is_number_integer()) {
        return BadResult("cells with requests, n_out and step_host_us", pair.dump());
      }
      decisions.push_back(Decide(cost, pair["requests"].get<int>(), n_out, *before, *after));
    }
  }
  if (decisions.empty()) return BadResult("cells of modes one-card and pair", "none");
  return decisions;
}

}  // namespace tp2::bench
