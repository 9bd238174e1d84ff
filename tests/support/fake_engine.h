// A deterministic engine without a model: its drafts are a hash of the slot's window and the
// anchor, so that any wrong row, order, slot or position shows in every token. Fails on demand.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "libcore/base/digest.h"
#include "libcore/base/error.h"
#include "libcore/base/rng.h"
#include "libcore/drafter/step_engine.h"

namespace tp2::testing {

inline DrafterConfig FakeConfig() {
  DrafterConfig config;
  config.dim = 32;
  config.vocab = 1000;
  config.window = 8;
  config.target_layers = {1, 2, 3};
  config.heads = 1;
  config.head_dim = 32;
  config.o_groups = 1;
  return config;
}

class FakeEngine final : public StepEngine {
 public:
  explicit FakeEngine(int64_t max_positions = 10'000) {
    info_.config = FakeConfig();
    info_.max_positions = max_positions;
    info_.identity_digest = Sha256("fake checkpoint");
    info_.numerics_version = 0x1122334455667788u;
    info_.mode = "one-card";
    info_.backend = "cpu";
  }

  // Knobs; set them before the calls they concern, or from the engine's thread.
  std::atomic<int> failing_steps{0};    // the next n STEPs fail after rows were written
  std::atomic<int> failing_inserts{0};  // the next n INSERTs fail
  std::atomic<int> failing_resets{0};   // the next n ResetSlots fail
  std::atomic<bool> dies_on_failure{false};
  std::atomic<int64_t> step_ms{0};
  std::atomic<int> steps_started{0};
  std::atomic<int> maintained{0};
  std::atomic<int> failing_maintenance{0};  // the next n MaintainWhileIdle fail
  std::atomic<int> threads_used{0};         // that called UseThread

  EngineInfo& mutable_info() { return info_; }
  const EngineInfo& info() const override { return info_; }
  bool is_healthy() const override { return is_healthy_; }
  const SlotWindow& window(int slot) const override { return slots_[slot].window; }

  void UseThread() override { ++threads_used; }
  absl::Status MaintainWhileIdle() override {
    ++maintained;
    return TakeFailure(&failing_maintenance) ? Failure() : absl::OkStatus();
  }

  absl::Status ResetSlot(int slot, int64_t base) override {
    if (TakeFailure(&failing_resets)) return Failure();
    slots_[slot].window = SlotWindow(base);
    slots_[slot].rows.clear();
    return absl::OkStatus();
  }

  absl::Status Insert(const InsertRows& rows) override {
    if (TakeFailure(&failing_inserts)) {
      Spoil(rows.slot);
      return Failure();
    }
    Write(rows);
    return absl::OkStatus();
  }

  absl::StatusOr<StepOutputs> Step(const StepRequest& request) override {
    ++steps_started;
    if (step_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(step_ms.load()));
    StepOutputs outputs;
    const bool fails = TakeFailure(&failing_steps);
    for (const StepEntry& entry : request.entries) {
      Write(entry.rows);
      if (fails) Spoil(entry.rows.slot);
      outputs.entries.push_back(Draft(entry, request.n_out));
    }
    outputs.draft_ns = 1000;
    if (fails) return Failure();
    return outputs;
  }

 private:
  struct Slot {
    SlotWindow window;
    std::map<int64_t, uint64_t> rows;  // position -> hash of kind and values
  };

  static bool TakeFailure(std::atomic<int>* left) {
    if (*left <= 0) return false;
    --*left;
    return true;
  }
  absl::Status Failure() {
    if (dies_on_failure) is_healthy_ = false;
    return MakeError(absl::StatusCode::kInternal,
                     {.what = "fake engine", .expected = "success", .got = "an injected failure"});
  }
  // What a device failure leaves behind: rows nobody may trust.
  void Spoil(int slot) {
    slots_[slot].rows.clear();
    slots_[slot].window = SlotWindow(9999);
  }

  void Write(const InsertRows& rows) {
    Slot& slot = slots_[rows.slot];
    const size_t row_values = rows.row_count == 0 ? 0 : rows.values.size() / rows.row_count;
    for (int row = 0; row < rows.row_count; ++row) {
      const auto values = rows.values.subspan(row * row_values, row_values);
      slot.rows[rows.position + row] =
          Mix64(Xxh3::Of(std::as_bytes(values)) + static_cast<uint64_t>(rows.kind));
    }
    slot.window.Insert(rows.position, rows.row_count, info_.config.ring_rows());
    slot.rows.erase(slot.rows.lower_bound(slot.window.length()), slot.rows.end());
    slot.rows.erase(slot.rows.begin(), slot.rows.lower_bound(slot.window.oldest()));
  }

  EntryOutput Draft(const StepEntry& entry, int n_out) const {
    const Slot& slot = slots_[entry.rows.slot];
    uint64_t hash = Mix64(static_cast<uint64_t>(entry.anchor));
    const int64_t begin = slot.window.WindowBegin(info_.config.window);
    for (auto row = slot.rows.lower_bound(begin); row != slot.rows.end(); ++row) {
      hash = Mix64(hash ^ row->second ^ static_cast<uint64_t>(row->first));
    }
    EntryOutput output{};
    output.tokens.fill(-1);
    output.window_rows = slot.window.WindowRows(info_.config.window);
    for (int i = 0; i < n_out; ++i) {
      hash = Mix64(hash + static_cast<uint64_t>(i));
      output.tokens[i] = static_cast<int32_t>(hash % static_cast<uint64_t>(info_.config.vocab));
      output.runner_up[i] = (output.tokens[i] + 1) % info_.config.vocab;
      output.confidence_logit[i] = static_cast<float>(hash >> 40) * 0x1p-24f;
      output.margin[i] = static_cast<float>((hash >> 20) & 0xFFFF);
    }
    return output;
  }

  EngineInfo info_;
  std::array<Slot, kSlotCount> slots_;
  bool is_healthy_ = true;
};

}  // namespace tp2::testing
