// Is a second card worth it? The specification's decision: what a shorter draft is worth in rounds
// of the serving engine, held against a promotion threshold. Source of the arithmetic: the
// specification, "When two cards beat one".
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/base/json.h"
#include "libcore/model/drafter_config.h"

namespace tp2::bench {

// How the engine prices a round: the verify forward of a depth and the remote draft.
struct CostModel {
  std::array<std::optional<double>, kBlockRows + 1> round_ms;  // by depth, n_out; [0] is unused
  double remote_draft_ms = 0;  // of a STEP on one card, transport included
  double threshold_pct = 0;    // more rounds per second than this are worth a second card
};

// Keys of the YAML file: round_ms_1 to round_ms_5, remote_draft_ms, threshold_pct. Errors:
// kInvalidArgument for text that is no such file, or without any round_ms.
absl::StatusOr<CostModel> ParseCostModel(std::string_view yaml, const std::string& where);

struct Decision {
  int requests = 0;
  int n_out = 0;
  double one_card_ms = 0, pair_ms = 0;  // of a whole STEP
  double remote_draft_ms = 0;           // recalibrated for the pair
  // Nothing where the cost model does not price the depth.
  std::optional<double> one_card_round_ms = {}, pair_round_ms = {};
  std::optional<double> more_rounds_pct = {};
  bool is_worth_it = false;

  double saved_ms() const { return one_card_ms - pair_ms; }
};

// A round of one card is round_ms + remote_draft_ms; the pair's is shorter by what a STEP saves.
Decision Decide(const CostModel& cost, int requests, int n_out, double one_card_ms, double pair_ms);

// For every (requests, n_out, inserted rows) that a result of tp2-bench pair or step has of both
// modes: p50 of step_host_us. Errors: kInvalidArgument for another JSON or one without such cells.
absl::StatusOr<std::vector<Decision>> DecideAll(const CostModel& cost, const Json& result);

}  // namespace tp2::bench
