#include "cmd/tp2-bench/decide.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/file.h"
#include "libcore/base/json.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/decide.h"
#include "libcore/bench/result.h"
#include "libcore/report/output.h"
#include "libcore/report/table.h"

namespace tp2::bench {
namespace {

constexpr size_t kMaxCostBytes = 16 << 20;

std::string OptionalMs(const std::optional<double>& ms) {
  return ms.has_value() ? absl::StrFormat("%.2f", *ms) : "-";
}

Json DecisionJson(const Decision& decision) {
  const auto number = [](const std::optional<double>& value) {
    return value.has_value() ? Json(*value) : Json(nullptr);
  };
  return {{"requests", decision.requests},
          {"n_out", decision.n_out},
          {"one_card_step_ms", decision.one_card_ms},
          {"pair_step_ms", decision.pair_ms},
          {"one_card_round_ms", number(decision.one_card_round_ms)},
          {"pair_round_ms", number(decision.pair_round_ms)},
          {"more_rounds_pct", number(decision.more_rounds_pct)},
          {"remote_draft_ms", decision.remote_draft_ms},
          {"is_worth_it", decision.is_worth_it}};
}

std::string TextOf(const Flags& flags, const CostModel& cost,
                   const std::vector<Decision>& decisions) {
  std::string text =
      absl::StrCat("# tp2-bench decide  ", flags.before_path, "  ", flags.cost_path, "\n");
  absl::StrAppendFormat(&text,
                        "# worth it from %.1f %% more rounds per second on; a round: the depth's "
                        "verify forward + %.2f ms of remote draft\n",
                        cost.threshold_pct, cost.remote_draft_ms);
  Table table({{"req", "(n)"},
               {"n_out", "(n)"},
               {"one card", "(ms)"},
               {"pair", "(ms)"},
               {"saved", "(ms)"},
               {"round", "(ms)"},
               {"pair's", "(ms)"},
               {"rounds/s", "(%)"},
               {"draft price", "(ms)"},
               {"verdict", ""}});
  for (const Decision& decision : decisions) {
    const bool has_round = decision.more_rounds_pct.has_value();
    table.AddRow({absl::StrCat(decision.requests), absl::StrCat(decision.n_out),
                  FormatMs(decision.one_card_ms), FormatMs(decision.pair_ms),
                  FormatMs(decision.saved_ms()), OptionalMs(decision.one_card_round_ms),
                  OptionalMs(decision.pair_round_ms),
                  has_round ? absl::StrFormat("%+.2f", *decision.more_rounds_pct) : "-",
                  absl::StrFormat("%.2f", decision.remote_draft_ms),
                  !has_round             ? "unpriced"
                  : decision.is_worth_it ? "pair"
                                         : "one-card"});
  }
  return absl::StrCat(text, table.Render());
}

}  // namespace

absl::Status PrintDecision(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const std::string yaml, ReadTextFile(flags.cost_path, kMaxCostBytes));
  TP2_ASSIGN_OR_RETURN(const CostModel cost, ParseCostModel(yaml, flags.cost_path));
  TP2_ASSIGN_OR_RETURN(const Json result, ReadResult(flags.before_path));
  TP2_ASSIGN_OR_RETURN(const std::vector<Decision> decisions, DecideAll(cost, result));
  if (flags.json_path.empty()) return PrintResult(TextOf(flags, cost, decisions));
  Json json = {{"schema", "tp2-decide/1"},
               {"result", flags.before_path},
               {"cost_model", flags.cost_path},
               {"threshold_pct", cost.threshold_pct},
               {"decisions", Json::array()}};
  for (const Decision& decision : decisions) json["decisions"].push_back(DecisionJson(decision));
  if (flags.json_path == "-") return PrintResult(json.dump(1) + "\n");
  TP2_RETURN_IF_ERROR(WriteFileAtomically(flags.json_path, json.dump(1) + "\n", IfExists::kRefuse));
  return PrintResult(TextOf(flags, cost, decisions));
}

}  // namespace tp2::bench
