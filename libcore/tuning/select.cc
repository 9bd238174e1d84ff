#include "libcore/tuning/select.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/percentile.h"
#include "libcore/base/status_macros.h"

namespace tp2::tuning {
namespace {

// After the first round nobody this much slower than the fastest is timed again.
constexpr double kHopeless = 1.5;

bool IsOwnFailure(const absl::Status& status) {
  return status.code() == absl::StatusCode::kResourceExhausted ||
         status.code() == absl::StatusCode::kFailedPrecondition;
}

// Files keep nanoseconds.
double Rounded(double us) { return std::round(us * 1000) / 1000; }

struct Quartiles {
  double low, middle, high;
};

Quartiles QuartilesOf(const Timing& timing) {
  return {NearestRank(timing.us, 25), NearestRank(timing.us, 50), NearestRank(timing.us, 75)};
}

class Race {
 public:
  Race(Stopwatch& stopwatch, std::span<const Choice> choices, const SelectOptions& options)
      : stopwatch_(stopwatch), options_(options) {
    for (const Choice& choice : choices) {
      selection_.timings.push_back({choice, {}, absl::OkStatus()});
      runs_.push_back(true);
    }
  }

  absl::Status Run() {
    const auto last = static_cast<int>(runs_.size()) - 1;
    for (int round = 0; round < options_.rounds; ++round) {
      for (int i = 0; i <= last; ++i) TP2_RETURN_IF_ERROR(Turn(i));
      for (int i = last; i >= 0; --i) TP2_RETURN_IF_ERROR(Turn(i));
      if (round == 0) DropHopeless();
    }
    return absl::OkStatus();
  }

  // Index of the fastest but `except`; nothing when no other has a time.
  std::optional<size_t> Fastest(std::optional<size_t> except) const {
    std::optional<size_t> best;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (i == except || selection_.timings[i].us.empty()) continue;
      if (!best.has_value() || IsBefore(i, *best)) best = i;
    }
    return best;
  }

  // The smallest of those that tie with `best`.
  size_t SmallestTie(size_t best) const {
    const Quartiles fastest = QuartilesOf(selection_.timings[best]);
    size_t chosen = best;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const Timing& timing = selection_.timings[i];
      if (timing.us.empty() || !runs_[i]) continue;
      const Quartiles own = QuartilesOf(timing);
      const double gap_pct = 100 * (own.middle - fastest.middle) / fastest.middle;
      const bool is_tie =
          gap_pct < options_.tie_pct || (gap_pct < kNoiseLimitPct && own.low <= fastest.high);
      if (is_tie && IsSmaller(timing.choice, selection_.timings[chosen].choice)) chosen = i;
    }
    return chosen;
  }

  Selection Take() { return std::move(selection_); }
  double P50(size_t i) const { return NearestRank(selection_.timings[i].us, 50); }

 private:
  // Equal times: the smaller one, so that the candidates' order decides nothing.
  bool IsBefore(size_t a, size_t b) const {
    if (P50(a) != P50(b)) return P50(a) < P50(b);
    return IsSmaller(selection_.timings[a].choice, selection_.timings[b].choice);
  }

  absl::Status Turn(int i) {
    if (!runs_[i]) return absl::OkStatus();
    if (options_.is_interrupted && options_.is_interrupted()) {
      return absl::CancelledError("tuning: interrupted; nothing is written");
    }
    Timing& timing = selection_.timings[i];
    absl::StatusOr<std::vector<double>> us = stopwatch_.Time(i, options_.replays);
    if (us.ok()) {
      timing.us.insert(timing.us.end(), us->begin(), us->end());
      return absl::OkStatus();
    }
    if (!IsOwnFailure(us.status())) return us.status();
    timing.failure = us.status();
    timing.us.clear();
    runs_[i] = false;
    return absl::OkStatus();
  }

  void DropHopeless() {
    const std::optional<size_t> best = Fastest(std::nullopt);
    for (size_t i = 0; best.has_value() && i < runs_.size(); ++i) {
      if (runs_[i] && P50(i) > kHopeless * P50(*best)) runs_[i] = false;
    }
  }

  Stopwatch& stopwatch_;
  const SelectOptions& options_;
  Selection selection_;
  std::vector<bool> runs_;
};

}  // namespace

absl::StatusOr<Selection> Select(Stopwatch& stopwatch, const KernelKey& key,
                                 std::span<const Choice> choices, const SelectOptions& options) {
  TP2_RETURN_IF_ERROR(stopwatch.Prepare(key, choices));
  Race race(stopwatch, choices, options);
  TP2_RETURN_IF_ERROR(race.Run());
  const std::optional<size_t> best = race.Fastest(std::nullopt);
  if (!best.has_value()) {
    return MakeError(
        absl::StatusCode::kInternal,
        {.what = KeyName(key), .expected = "a candidate that runs", .got = "none of them"});
  }
  const size_t chosen = race.SmallestTie(*best);
  const std::optional<size_t> second = race.Fastest(chosen);
  const double us = race.P50(chosen);
  KernelEntry entry = {choices[chosen], Rounded(us), std::nullopt, std::nullopt};
  if (second.has_value()) {
    entry.runner_up = choices[*second];
    entry.us_gap_pct = std::round(1e4 * (race.P50(*second) - us) / us) / 100;
  }
  Selection selection = race.Take();
  selection.entry = entry;
  return selection;
}

absl::StatusOr<std::map<ReduceKey, KernelEntry>> SelectReduces(
    Stopwatch& stopwatch, const std::map<ReduceKey, std::vector<Choice>>& candidates,
    const SelectOptions& options) {
  std::optional<double> best_us;
  std::map<ReduceKey, KernelEntry> best;
  for (const PairProtocol protocol : {PairProtocol::kLine, PairProtocol::kAck}) {
    std::map<ReduceKey, KernelEntry> entries;
    double sum_us = 0;
    for (const auto& [key, all] : candidates) {
      std::vector<Choice> own;
      for (const Choice& choice : all) {
        if (std::get<ReduceChoice>(choice).protocol == protocol) own.push_back(choice);
      }
      if (own.empty()) continue;
      TP2_ASSIGN_OR_RETURN(Selection selection, Select(stopwatch, key, own, options));
      sum_us += *selection.entry.us_p50;
      entries[key] = std::move(selection.entry);
    }
    if (entries.size() != candidates.size()) continue;
    const bool wins = !best_us.has_value() || sum_us < *best_us * (1 - options.tie_pct / 100);
    if (!wins) continue;
    best_us = sum_us;
    best = std::move(entries);
  }
  return best;
}

}  // namespace tp2::tuning
