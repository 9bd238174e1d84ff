#include "libcore/parity/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/clock.h"
#include "libcore/base/status_macros.h"
#include "libcore/parity/near_tie.h"

namespace tp2 {
namespace {

// Sound implementations with bf16 hand-overs lie within 6 % of each other's logits (golden vectors:
// 2.8 to 5 %); noise above it may not widen the near-tie rule and fails the window.
constexpr double kMaxNoiseShare = 0.06;
// Medians of confidence differences of sound implementations, as a share of their spread.
constexpr double kMaxConfidenceShare = 0.1;
// Makes the median of absolute differences the standard deviation of normal noise.
constexpr double kMadToSigma = 1.4826;
constexpr size_t kMinSamples = 16;
// Closer looks at blocks that agree, for the spread of the logits.
constexpr int64_t kSpreadLooks = 8;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double Deviation(const std::vector<double>& values) {
  if (values.empty()) return 0;
  double mean = 0, squares = 0;
  for (const double value : values) mean += value;
  mean /= static_cast<double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// The first position that differs, or n_out.
int FirstMismatch(const std::array<int32_t, kBlockRows>& ours,
                  const std::array<int32_t, kBlockRows>& theirs, int n_out) {
  int i = 0;
  while (i < n_out && ours[i] == theirs[i]) ++i;
  return i;
}

// Experts of one row in both models: the largest distance of our scores between an expert that
// only one of them chose and one that only the other chose.
std::optional<double> ExchangedDistance(std::span<const int32_t> ours,
                                        std::span<const int32_t> theirs,
                                        std::span<const float> scores) {
  const std::set<int32_t> mine(ours.begin(), ours.end()), other(theirs.begin(), theirs.end());
  std::optional<double> distance;
  for (const int32_t a : mine) {
    if (other.contains(a)) continue;
    for (const int32_t b : other) {
      if (mine.contains(b)) continue;
      distance = std::max(distance.value_or(0), std::fabs(double{scores[a]} - scores[b]));
    }
  }
  return distance;
}

// Score of the last chosen expert minus that of the best other one.
double RouteMargin(std::span<const int32_t> chosen, std::span<const float> scores) {
  double last = std::numeric_limits<double>::infinity(), best = -last;
  for (int e = 0; e < static_cast<int>(scores.size()); ++e) {
    if (std::find(chosen.begin(), chosen.end(), e) == chosen.end()) {
      best = std::max(best, double{scores[e]});
    } else {
      last = std::min(last, double{scores[e]});
    }
  }
  return last - best;
}

class Comparer {
 public:
  Comparer(StepEngine& engine, StepEngine* reference, const CaptureReader& capture,
           const DrafterWeights& weights, const CompareOptions& options)
      : capture_(capture), options_(options), replayer_(engine, capture, options.window, weights) {
    if (reference != nullptr) {
      reference_.emplace(*reference, capture, options.window, weights);
      result_.has_reference = true;
    }
    result_.window = options.window;
    const EngineInfo& info = engine.info();
    result_.promises_equal_bits =
        info.portable_bits && capture.info().numerics_version == info.numerics_version;
  }

  absl::StatusOr<WindowResult> Run() {
    const SteadyClock clock;
    const int64_t start_ns = clock.NowNs();
    const int64_t total = options_.max_rounds > 0
                              ? std::min(options_.max_rounds, capture_.round_count())
                              : capture_.round_count();
    for (int64_t round = 0; round < total; ++round) {
      TP2_RETURN_IF_ERROR(CompareRound(round, capture_.Round(round)));
      if (options_.progress) options_.progress(round + 1, total);
    }
    result_.rounds = total;
    result_.seconds = static_cast<double>(clock.NowNs() - start_ns) * 1e-9;
    FinishNoise();
    FinishConfidence();
    for (Mismatch& mismatch : result_.mismatches) Judge(mismatch);
    return std::move(result_);
  }

 private:
  absl::Status CompareRound(int64_t index, const CaptureRound& round) {
    const bool has_logits = capture_.info().has_logits;
    TP2_ASSIGN_OR_RETURN(const StepOutputs ours, replayer_.Step(round, has_logits));
    std::optional<StepOutputs> reference;
    if (reference_) {
      TP2_ASSIGN_OR_RETURN(reference, reference_->Step(round, false));
    }
    for (size_t b = 0; b < round.blocks.size(); ++b) {
      const CaptureBlock& block = round.blocks[b];
      const EntryOutput& entry = ours.entries[b];
      result_.engine.Add(entry.tokens, block.drafts, round.n_out);
      if (reference) {
        const auto& one_card = reference->entries[b].tokens;
        result_.reference.Add(entry.tokens, one_card, round.n_out);
        result_.reference_engine.Add(one_card, block.drafts, round.n_out);
      }
      const int equal = FirstMismatch(entry.tokens, block.drafts, round.n_out);
      if (result_.promises_equal_bits) CountValueDifferences(block, entry, equal);
      GatherNoise(block, entry, equal);
      const bool differs = equal < round.n_out;
      if (!differs && spreads_.size() >= kSpreadLooks) continue;
      TP2_ASSIGN_OR_RETURN(const BlockDetail detail, replayer_.Look(round, static_cast<int>(b)));
      spreads_.push_back(detail.logit_spread);
      if (has_logits) GatherLogitNoise(block, detail, equal);
      if (differs) NoteMismatch(index, static_cast<int>(b), block, detail, equal);
    }
    return absl::OkStatus();
  }

  void CountValueDifferences(const CaptureBlock& block, const EntryOutput& entry, int equal) {
    for (int i = 0; i < equal; ++i) {
      result_.value_differences +=
          (!block.margins.empty() && block.margins[i] != entry.margin[i]) +
          (!block.confidence.empty() && block.confidence[i] != entry.confidence_logit[i]);
    }
  }

  // Positions before the first mismatch followed the same tokens in both models.
  void GatherNoise(const CaptureBlock& block, const EntryOutput& entry, int equal) {
    for (int i = 0; i < equal; ++i) {
      if (!block.margins.empty()) {
        margin_noise_.push_back(std::fabs(double{entry.margin[i]} - block.margins[i]));
      }
      if (!block.confidence.empty()) {
        const double difference = double{entry.confidence_logit[i]} - block.confidence[i];
        confidence_noise_.push_back(std::fabs(difference));
        confidences_.push_back(block.confidence[i]);
      }
    }
  }

  // Of the two logits that a look computes, where the token is the engine's too.
  void GatherLogitNoise(const CaptureBlock& block, const BlockDetail& detail, int equal) {
    const int vocab = capture_.info().vocab;
    for (int i = 0; i <= std::min(equal, kBlockRows - 1); ++i) {
      const PositionDetail& position = detail.positions[i];
      if (position.token < 0) continue;
      const double theirs = block.logits[int64_t{i} * vocab + block.drafts[i]];
      logit_noise_.push_back(std::fabs(position.engine_token_logit - theirs));
    }
  }

  void NoteMismatch(int64_t round, int b, const CaptureBlock& block, const BlockDetail& detail,
                    int at) {
    Mismatch mismatch;
    mismatch.round = round;
    mismatch.block = b;
    mismatch.slot = block.slot;
    mismatch.position = at;
    const PositionDetail& position = detail.positions[at];
    mismatch.ours = position.token;
    mismatch.theirs = block.drafts[at];
    mismatch.our_gap = position.token_logit - position.engine_token_logit;
    largest_logit_.push_back(
        std::max(std::fabs(position.token_logit), std::fabs(position.engine_token_logit)));
    if (!block.logits.empty()) {
      const float* logits = block.logits.data() + int64_t{at} * capture_.info().vocab;
      mismatch.their_gap = double{logits[mismatch.theirs]} - logits[mismatch.ours];
    }
    if (!block.experts.empty() && !detail.experts.empty()) FindRouting(block, detail, mismatch);
    result_.mismatches.push_back(mismatch);
  }

  // The first stage where a row went to other experts; later stages only follow.
  void FindRouting(const CaptureBlock& block, const BlockDetail& detail, Mismatch& mismatch) {
    const CaptureInfo& info = capture_.info();
    for (int stage = 0; stage < info.stages && mismatch.route_stage < 0; ++stage) {
      for (int row = 0; row < kBlockRows; ++row) {
        const int64_t at = int64_t{stage} * kBlockRows + row;
        const auto part = [at](auto values, int64_t count) {
          return values.subspan(at * count, count);
        };
        const auto scores = part(std::span(detail.scores), info.experts);
        const auto ours = part(std::span(detail.experts), info.experts_per_token);
        const auto distance =
            ExchangedDistance(ours, part(block.experts, info.experts_per_token), scores);
        if (!distance) {
          route_noise_.push_back(std::fabs(RouteMargin(ours, scores) - block.route_margins[at]));
          continue;
        }
        mismatch.route_stage = stage;
        // Tied in one of the two models is enough, as for logits.
        mismatch.route_gap = std::max(
            mismatch.route_gap, std::min(*distance, std::fabs(double{block.route_margins[at]})));
      }
    }
  }

  void FinishNoise() {
    Noise& noise = result_.noise;
    noise.limit = kMaxNoiseShare * Median(spreads_);
    if (logit_noise_.size() >= kMinSamples) {
      noise.source = "logits";
      noise.measured = kMadToSigma * Median(logit_noise_);
      noise.samples = static_cast<int64_t>(logit_noise_.size());
    } else if (margin_noise_.size() >= kMinSamples) {
      // A margin is the difference of two logits.
      noise.source = "margins";
      noise.measured = kMadToSigma * Median(margin_noise_) / std::sqrt(2.0);
      noise.samples = static_cast<int64_t>(margin_noise_.size());
    }
    noise.sigma = std::min(noise.measured, noise.limit);
    if (route_noise_.size() >= kMinSamples) {
      // A margin is the difference of two scores.
      noise.route_sigma = kMadToSigma * Median(route_noise_) / std::sqrt(2.0);
    }
  }

  void FinishConfidence() {
    ConfidenceCheck& check = result_.confidence;
    check.samples = static_cast<int64_t>(confidence_noise_.size());
    if (confidence_noise_.size() < kMinSamples) return;
    check.median_difference = Median(confidence_noise_);
    check.largest_difference =
        *std::max_element(confidence_noise_.begin(), confidence_noise_.end());
    check.spread = Deviation(confidences_);
    check.has_passed = check.median_difference <= kMaxConfidenceShare * check.spread;
  }

  void Judge(Mismatch& mismatch) {
    const double logit = largest_logit_[static_cast<size_t>(&mismatch - result_.mismatches.data())];
    if (result_.promises_equal_bits) return;  // nothing but equality counts
    mismatch.threshold = TieThreshold(logit, 0, result_.noise.sigma);
    const bool is_tied = mismatch.our_gap <= mismatch.threshold ||
                         (mismatch.their_gap >= 0 && mismatch.their_gap <= mismatch.threshold);
    if (is_tied) {
      mismatch.verdict = Verdict::kNearTie;
    } else if (mismatch.route_stage >= 0 &&
               mismatch.route_gap <= RouteThreshold(result_.noise.route_sigma)) {
      mismatch.verdict = Verdict::kRouting;
    }
  }

  const CaptureReader& capture_;
  const CompareOptions& options_;
  Replayer replayer_;
  std::optional<Replayer> reference_;
  std::vector<double> logit_noise_, margin_noise_, route_noise_, confidence_noise_, confidences_,
      spreads_;
  std::vector<double> largest_logit_;  // of every mismatch
  WindowResult result_;
};

}  // namespace

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kExact:
      return "exact";
    case Verdict::kNearTie:
      return "near-tie";
    case Verdict::kRouting:
      return "routing";
    case Verdict::kUnexplained:
      break;
  }
  return "unexplained";
}

void Agreement::Add(const std::array<int32_t, kBlockRows>& ours,
                    const std::array<int32_t, kBlockRows>& theirs, int n_out) {
  const int first = FirstMismatch(ours, theirs, n_out);
  ++blocks;
  exact += first == n_out;
  prefix += first;
  for (int i = 0; i < n_out; ++i) {
    ++asked[i];
    equal[i] += ours[i] == theirs[i];
  }
}

double Agreement::ExactPercent() const {
  return blocks == 0 ? 0 : 100.0 * static_cast<double>(exact) / static_cast<double>(blocks);
}

double Agreement::MeanPrefix() const {
  return blocks == 0 ? 0 : static_cast<double>(prefix) / static_cast<double>(blocks);
}

int64_t WindowResult::Count(Verdict verdict) const {
  if (verdict == Verdict::kExact) return engine.exact;
  return std::count_if(mismatches.begin(), mismatches.end(),
                       [verdict](const Mismatch& m) { return m.verdict == verdict; });
}

std::vector<std::string> WindowResult::Failures() const {
  std::vector<std::string> failures;
  if (const int64_t count = Count(Verdict::kUnexplained); count > 0) {
    failures.push_back(absl::StrCat(count, " unexplained mismatches"));
  }
  if (value_differences > 0) {
    failures.push_back(
        absl::StrCat(value_differences, " confidence logits and margins differ from equal bits"));
  }
  if (!noise.is_plausible()) {
    failures.push_back(absl::StrFormat("logit noise %.4g above %.4g: no rounding explains it",
                                       noise.measured, noise.limit));
  }
  if (!confidence.has_passed) {
    failures.push_back(absl::StrFormat("confidence logits differ by %.4g (median), spread %.4g",
                                       confidence.median_difference, confidence.spread));
  }
  if (has_reference && reference.exact != reference.blocks) {
    failures.push_back(
        absl::StrCat(reference.blocks - reference.exact, " blocks differ from the one-card model"));
  }
  return failures;
}

absl::StatusOr<WindowResult> Compare(StepEngine& engine, StepEngine* reference,
                                     const CaptureReader& capture, const DrafterWeights& weights,
                                     const CompareOptions& options) {
  return Comparer(engine, reference, capture, weights, options).Run();
}

}  // namespace tp2
