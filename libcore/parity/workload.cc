#include "libcore/parity/workload.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tp2 {

std::vector<Bf16> RandomRows(Rng& rng, int64_t count) {
  std::vector<Bf16> values;
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values.push_back(ToBf16(rng.Signed()));
  return values;
}

Workload::Workload(const DrafterConfig& config, int64_t max_positions, uint64_t seed)
    : config_(config),
      max_positions_(max_positions),
      rng_(seed),
      windows_(kSlotCount),
      is_open_(kSlotCount) {}

// Mostly the accepted tokens of one round; sometimes a prompt, which may be longer than the window.
int Workload::RowCount(bool is_first) {
  if (is_first || rng_.Below(8) == 0) {
    return 1 + static_cast<int>(rng_.Below(std::min(kMaxRowsPerMessage, 2 * config_.window)));
  }
  return static_cast<int>(rng_.Below(7));
}

StepEntry Workload::NextEntry(int slot, WorkloadRound& round) {
  const bool is_first = !is_open_[slot] || rng_.Below(16) == 0;
  if (is_first) {
    // Every other slot starts far out, where the fp32 rounding of the RoPE angle matters.
    const int64_t reach = max_positions_ - 4096;
    const int64_t base = slot % 2 == 1 && reach > 0 ? static_cast<int64_t>(rng_.Below(reach)) : 0;
    round.resets.push_back({slot, base});
    windows_[slot] = SlotWindow(base);
    is_open_[slot] = true;
  }
  SlotWindow& window = windows_[slot];
  int row_count = RowCount(is_first);
  int64_t position = window.length();
  if (!is_first && rng_.Below(4) == 0) {
    const int64_t held = window.length() - window.oldest();
    position -= static_cast<int64_t>(rng_.Below(std::min<int64_t>(held, 6) + 1));
  }
  if (position == window.oldest()) row_count = std::max(row_count, 1);
  StepEntry entry;
  entry.rows.slot = slot;
  entry.rows.position = position;
  entry.rows.kind = rng_.Below(4) == 0 ? RowKind::kMainX : RowKind::kTaps;
  entry.rows.row_count = row_count;
  const int64_t row_values = entry.rows.kind == RowKind::kTaps ? config_.tap_values() : config_.dim;
  round.values.push_back(RandomRows(rng_, row_count * row_values));
  entry.anchor = static_cast<int32_t>(rng_.Below(config_.vocab));
  window.Insert(position, row_count, config_.ring_rows());
  return entry;
}

WorkloadRound Workload::Next() {
  WorkloadRound round;
  round.n_out = 1 + static_cast<int>(rng_.Below(kBlockRows));
  const int requests = 1 + static_cast<int>(rng_.Below(kMaxRequests));
  std::array<int, kSlotCount> slots = {};
  for (int slot = 0; slot < kSlotCount; ++slot) slots[slot] = slot;
  for (int i = 0; i < requests; ++i) {
    std::swap(slots[i], slots[i + rng_.Below(kSlotCount - i)]);
    round.entries.push_back(NextEntry(slots[i], round));
  }
  // Only now: the vector of vectors has stopped moving.
  for (int i = 0; i < requests; ++i) round.entries[i].rows.values = round.values[i];
  return round;
}

}  // namespace tp2
