// Chooses among candidates by time. Knows no card: who times a candidate stands behind Stopwatch,
// so that tests drive the choice with times of their own.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/tuning/kernel_key.h"
#include "libcore/tuning/kernel_table.h"

namespace tp2::tuning {

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;

  // Makes ready what timing these candidates needs: memory, kernels, captured graphs. Until the
  // next call nothing is allocated, loaded or captured.
  virtual absl::Status Prepare(const KernelKey& key, std::span<const Choice> choices) = 0;
  // Microseconds of each of `replays` replays of candidate `index`, as serving would run it.
  // Errors: kResourceExhausted or kFailedPrecondition for a candidate that this card cannot run,
  // which only that candidate pays for; all others end the tuning.
  virtual absl::StatusOr<std::vector<double>> Time(size_t index, int replays) = 0;
};

struct SelectOptions {
  int rounds = 3;    // each times every candidate there and back: A B C C B A
  int replays = 10;  // of each turn
  // Gaps below it, in percent, are ties, and so are gaps below kNoiseLimitPct whose quartiles
  // overlap.
  double tie_pct = 1;
  // Between turns; true ends the tuning with kCancelled. May be empty.
  std::function<bool()> is_interrupted = {};
};
inline constexpr double kNoiseLimitPct = 5;

// One candidate's samples, or why it has none.
struct Timing {
  Choice choice;
  std::vector<double> us;
  absl::Status failure;
};

struct Selection {
  KernelEntry entry;
  std::vector<Timing> timings;  // in the order of the candidates
};

// The fastest, or the smallest of those that tie with it. The order of `choices` has no influence
// but on who is timed when. Errors: the stopwatch's; kCancelled; kInternal when every candidate
// failed.
absl::StatusOr<Selection> Select(Stopwatch& stopwatch, const KernelKey& key,
                                 std::span<const Choice> choices, const SelectOptions& options);

// All-reduces of several sizes: each protocol by itself, then the one with the smaller sum over the
// sizes, lines in a tie, because a pair speaks one.
absl::StatusOr<std::map<ReduceKey, KernelEntry>> SelectReduces(
    Stopwatch& stopwatch, const std::map<ReduceKey, std::vector<Choice>>& candidates,
    const SelectOptions& options);

}  // namespace tp2::tuning
