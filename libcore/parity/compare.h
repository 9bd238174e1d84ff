// Agreement of drafts with a capture's engine drafts, and a verdict for every block that differs.
// A block is the n_out drafts of one request in one round; only its first mismatch is judged,
// because what follows was drafted after another token.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/capture/capture_reader.h"
#include "libcore/parity/replay.h"

namespace tp2 {

enum class Verdict : uint8_t {
  kExact,
  kNearTie,  // the two tokens are tied in one model's logits (near_tie.h)
  kRouting,  // experts chosen differently at a tie of their scores came first
  kUnexplained,
};

const char* VerdictName(Verdict verdict);

// Counts over blocks.
struct Agreement {
  int64_t blocks = 0;
  int64_t exact = 0;
  std::array<int64_t, kBlockRows> equal{};  // drafts equal at position 0 .. 4
  std::array<int64_t, kBlockRows> asked{};
  int64_t prefix = 0;  // equal drafts in front of the first mismatch, summed

  void Add(const std::array<int32_t, kBlockRows>& ours,
           const std::array<int32_t, kBlockRows>& theirs, int n_out);
  double ExactPercent() const;
  double MeanPrefix() const;
};

struct Mismatch {
  int64_t round = 0;
  int block = 0;
  int slot = 0;
  int position = 0;  // 0 .. 4, the first that differs
  int32_t ours = -1;
  int32_t theirs = -1;
  double our_gap = 0;     // our logit of our token minus that of theirs
  double their_gap = -1;  // the engine's logit of its token minus that of ours; -1: not captured
  double threshold = 0;   // of the near-tie rule
  int route_stage = -1;   // the first stage with other experts; -1: none or not captured
  double route_gap = 0;   // largest score distance of the exchanged experts there
  Verdict verdict = Verdict::kUnexplained;
};

// The noise between the two models' logits.
struct Noise {
  const char* source = "none";  // "logits", "margins" or "none"
  double sigma = 0;             // as used
  double measured = 0;
  double limit = 0;  // sigma may not exceed it: such noise is a fault, not rounding
  int64_t samples = 0;
  double route_sigma = 0;  // of routing margins, where both chose the same experts
  bool is_plausible() const { return measured <= limit; }
};

// Differences of the confidence logits at positions before any mismatch.
struct ConfidenceCheck {
  int64_t samples = 0;
  double median_difference = 0;
  double largest_difference = 0;
  double spread = 0;  // standard deviation of the engine's
  bool has_passed = true;
};

struct WindowResult {
  CaptureWindow window = CaptureWindow::kTaps;
  // The capture was drafted with our numerics version: equal bits are promised, so no near-tie
  // explains anything, and confidence and margins must be equal too.
  bool promises_equal_bits = false;
  int64_t value_differences = 0;  // confidence logits and margins with other bits, if so
  Agreement engine;               // our mode against the engine
  Agreement reference;            // our mode against our one-card model
  Agreement reference_engine;     // our one-card model against the engine
  bool has_reference = false;
  Noise noise;
  ConfidenceCheck confidence;
  std::vector<Mismatch> mismatches;  // against the engine, in order
  int64_t rounds = 0;
  double seconds = 0;

  int64_t Count(Verdict verdict) const;
  // What keeps the window from passing, one line each; empty: it passed.
  std::vector<std::string> Failures() const;
};

struct CompareOptions {
  CaptureWindow window = CaptureWindow::kTaps;
  int64_t max_rounds = 0;  // 0: all
  std::function<void(int64_t done, int64_t total)> progress;
};

// `reference`: the one-card engine, or null when `engine` is it. Errors: the engines'.
absl::StatusOr<WindowResult> Compare(StepEngine& engine, StepEngine* reference,
                                     const CaptureReader& capture, const DrafterWeights& weights,
                                     const CompareOptions& options);

}  // namespace tp2
