#include "libcore/parity/replay.h"

#include <cmath>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "libcore/base/status_macros.h"
#include "libcore/drafter/observer.h"
#include "libcore/ops/cpu/cpu_ops.h"

namespace tp2 {
namespace {

// Keeps routing tensors.
class RoutingObserver final : public StepObserver {
 public:
  void OnTensor(const std::string& name, std::vector<int64_t> shape,
                std::span<const float> values) override {
    if (name.ends_with(".route_ids") || name.ends_with(".router_logits")) {
      tensors_[name].assign(values.begin(), values.end());
    }
  }
  std::span<const float> Find(int stage, const char* name) const {
    const auto found = tensors_.find(absl::StrCat("s", stage, ".", name));
    return found == tensors_.end() ? std::span<const float>() : found->second;
  }

 private:
  std::map<std::string, std::vector<float>> tensors_;
};

// The observer is taken off again however the step ends.
class Observed {
 public:
  Observed(StepEngine& engine, StepObserver* observer) : engine_(engine) {
    engine_.SetObserver(observer);
  }
  ~Observed() { engine_.SetObserver(nullptr); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  StepEngine& engine_;
};

void FillRouting(const RoutingObserver& observer, const CaptureInfo& info,
                 const DrafterWeights& weights, BlockDetail& detail) {
  for (int stage = 0; stage < info.stages; ++stage) {
    const auto ids = observer.Find(stage, "route_ids");
    const auto logits = observer.Find(stage, "router_logits");
    for (const float id : ids) detail.experts.push_back(static_cast<int32_t>(id));
    for (size_t i = 0; i < logits.size(); ++i) {
      const float bias = weights.stages[stage].gate_bias[i % info.experts];
      detail.scores.push_back(GateAffinity(logits[i]) + bias);
    }
  }
}

double Spread(std::span<const float> values) {
  double sum = 0, squares = 0;
  for (const float value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const float value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// base + Markov bias of one token, the drafter's own arithmetic.
class LogitOf {
 public:
  LogitOf(const DrafterConfig& config, const DrafterWeights& weights)
      : ops_(config, 1, 1), weights_(weights) {}

  double operator()(float base, int32_t previous, int32_t token) {
    Half16View row = weights_.markov_head;
    row.bits += static_cast<int64_t>(token) * row.columns;
    row.rows = 1;
    TopTwo best;
    ops_.Markov(0, {.base = &base,
                    .base_stride = 1,
                    .previous = &previous,
                    .embed = weights_.markov_embed,
                    .head = row,
                    .vocab_begin = token,
                    .requests = 1,
                    .best = &best});
    return best.first.score;
  }

 private:
  CpuOps<Bf16> ops_;
  const DrafterWeights& weights_;
};

}  // namespace

Replayer::Replayer(StepEngine& engine, const CaptureReader& capture, CaptureWindow window,
                   const DrafterWeights& weights)
    : engine_(engine), info_(capture.info()), window_(window), weights_(weights) {}

absl::StatusOr<StepOutputs> Replayer::Step(const CaptureRound& round, bool wants_debug) {
  std::vector<StepEntry> entries;
  for (const CaptureBlock& block : round.blocks) {
    if (block.base) TP2_RETURN_IF_ERROR(engine_.ResetSlot(block.slot, *block.base));
    StepEntry& entry = entries.emplace_back();
    entry.rows.slot = block.slot;
    entry.rows.position = block.position;
    entry.rows.kind = window_ == CaptureWindow::kMainX ? RowKind::kMainX : RowKind::kTaps;
    entry.rows.row_count = block.row_count;
    entry.rows.values = window_ == CaptureWindow::kMainX ? block.main_x : block.taps;
    entry.anchor = block.anchor;
  }
  return engine_.Step({.entries = entries, .n_out = round.n_out, .wants_debug = wants_debug});
}

absl::StatusOr<BlockDetail> Replayer::Look(const CaptureRound& round, int block) {
  const CaptureBlock& captured = round.blocks[block];
  StepEntry entry;
  entry.rows.slot = captured.slot;
  entry.rows.position = captured.position + captured.row_count;
  entry.anchor = captured.anchor;
  RoutingObserver observer;
  absl::StatusOr<StepOutputs> outputs;
  {
    const Observed observed(engine_, &observer);
    outputs = engine_.Step({.entries = {&entry, 1}, .n_out = round.n_out, .wants_debug = true});
  }
  TP2_RETURN_IF_ERROR(outputs.status());
  const EntryOutput& ours = outputs->entries[0];
  const DrafterConfig& config = engine_.info().config;
  BlockDetail detail;
  LogitOf logit_of(config, weights_);
  for (int i = 0; i < round.n_out; ++i) {
    const float* base = outputs->base_logits.data() + int64_t{i} * config.vocab;
    const int32_t previous = i == 0 ? captured.anchor : ours.tokens[i - 1];
    const int32_t theirs = captured.drafts[i];
    detail.positions[i] = {ours.tokens[i], logit_of(base[ours.tokens[i]], previous, ours.tokens[i]),
                           logit_of(base[theirs], previous, theirs)};
  }
  detail.logit_spread = Spread(std::span(outputs->base_logits).first(config.vocab));
  FillRouting(observer, info_, weights_, detail);
  return detail;
}

}  // namespace tp2
