#include "libcore/parity/self_run.h"

#include <array>
#include <span>
#include <vector>

#include "libcore/base/digest.h"
#include "libcore/base/rng.h"
#include "libcore/base/status_macros.h"
#include "libcore/ops/graph_key.h"
#include "libcore/parity/workload.h"

namespace tp2 {

namespace {

void Add(const StepOutputs& outputs, Xxh3& digest) {
  for (const EntryOutput& entry : outputs.entries) {
    digest.UpdateValues(std::span<const int32_t>(entry.tokens));
    digest.UpdateValues(std::span<const float>(entry.confidence_logit));
    digest.UpdateValues(std::span<const float>(entry.margin));
  }
  digest.UpdateValues(std::span<const float>(outputs.base_logits));
  digest.UpdateValues(std::span<const float>(outputs.head_hidden));
}

// Slots for RunGrid: rows appended to slot after slot.
class Filler {
 public:
  Filler(StepEngine& engine, uint64_t seed) : engine_(engine), rng_(seed) {}

  absl::Status ResetAll() {
    for (int slot = 0; slot < kSlotCount; ++slot)
      TP2_RETURN_IF_ERROR(engine_.ResetSlot(slot, slot));
    return absl::OkStatus();
  }
  // Rows for the end of `slot`; they live until the next call for it.
  InsertRows Rows(int slot, int count, RowKind kind) {
    const DrafterConfig& config = engine_.info().config;
    const int64_t row_values = kind == RowKind::kTaps ? config.tap_values() : config.dim;
    values_[slot] = RandomRows(rng_, count * row_values);
    return {slot, engine_.window(slot).length(), kind, count, values_[slot]};
  }
  int32_t Anchor() { return static_cast<int32_t>(rng_.Below(engine_.info().config.vocab)); }

 private:
  StepEngine& engine_;
  Rng rng_;
  std::array<std::vector<Bf16>, kSlotCount> values_;
};

absl::Status FillBuckets(StepEngine& engine, Filler& filler) {
  int slot = 0, lowest = 1;
  for (const int bucket : kInsertBuckets) {
    for (const int count : {lowest, bucket}) {
      for (const RowKind kind : {RowKind::kTaps, RowKind::kMainX}) {
        TP2_RETURN_IF_ERROR(engine.Insert(filler.Rows(slot++ % kSlotCount, count, kind)));
      }
    }
    lowest = bucket + 1;
  }
  return absl::OkStatus();
}

bool HaveSameDrafts(const StepOutputs& a, const StepOutputs& b) {
  bool is_same = a.base_logits == b.base_logits && a.head_hidden == b.head_hidden;
  for (size_t i = 0; i < a.entries.size(); ++i) {
    is_same = is_same && a.entries[i].tokens == b.entries[i].tokens &&
              a.entries[i].confidence_logit == b.entries[i].confidence_logit;
  }
  return is_same;
}

}  // namespace

absl::StatusOr<SelfRunResult> RunGrid(StepEngine& engine, const SelfRunOptions& options) {
  Filler filler(engine, options.seed);
  TP2_RETURN_IF_ERROR(filler.ResetAll());
  TP2_RETURN_IF_ERROR(FillBuckets(engine, filler));
  Xxh3 digest;
  SelfRunResult result;
  for (int requests = 1; requests <= kMaxRequests; ++requests) {
    for (int n_out = 1; n_out <= kBlockRows; ++n_out) {
      std::vector<StepEntry> entries;
      for (int i = 0; i < requests; ++i) {
        const int slot = (i + n_out) % kSlotCount;
        entries.push_back({filler.Rows(slot, (i + n_out) % 7, RowKind::kTaps), filler.Anchor()});
      }
      StepRequest request = {.entries = entries, .n_out = n_out, .wants_debug = true};
      TP2_ASSIGN_OR_RETURN(const StepOutputs complete, engine.Step(request));
      for (StepEntry& entry : entries) {
        entry.rows = filler.Rows(entry.rows.slot, 0, RowKind::kTaps);
      }
      request.wants_margins = false;
      TP2_ASSIGN_OR_RETURN(const StepOutputs plain, engine.Step(request));
      Add(complete, digest);
      Add(plain, digest);
      result.plain_differences += HaveSameDrafts(complete, plain) ? 0 : 1;
      result.drafts += 2 * requests * n_out;
      result.rounds += 2;
    }
  }
  result.digest = digest.Finish();
  return result;
}

absl::StatusOr<SelfRunResult> RunSelf(StepEngine& engine, const SelfRunOptions& options) {
  Workload workload(engine.info().config, engine.info().max_positions, options.seed);
  Xxh3 digest;
  SelfRunResult result;
  bool goes_on = true;
  while (goes_on && result.rounds < options.rounds) {
    const WorkloadRound round = workload.Next();
    for (const WorkloadRound::Reset& reset : round.resets) {
      TP2_RETURN_IF_ERROR(engine.ResetSlot(reset.slot, reset.base));
    }
    TP2_ASSIGN_OR_RETURN(
        const StepOutputs outputs,
        engine.Step({.entries = round.entries, .n_out = round.n_out, .wants_debug = true}));
    Add(outputs, digest);
    result.drafts += static_cast<int>(outputs.entries.size()) * round.n_out;
    ++result.rounds;
    if (options.after_round) {
      TP2_ASSIGN_OR_RETURN(goes_on, options.after_round(result.rounds));
    }
  }
  result.digest = digest.Finish();
  return result;
}

}  // namespace tp2
