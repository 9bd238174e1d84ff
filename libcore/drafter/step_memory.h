// All that a STEP sends to a rank lies in one piece of memory, so that it travels in one copy: the
// head below, then the new context rows. What the drafts bring back is the head's last field, one
// copy too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include "libcore/math/bf16.h"
#include "libcore/model/drafter_config.h"
#include "libcore/ops/window_rows.h"

namespace tp2 {

inline constexpr int kMaxBlockRows = kMaxRequests * kBlockRows;
inline constexpr int kTokensPerRequest = kBlockRows + 1;  // the anchor and the drafts after it

// Sent with the anchors in place; positions at and beyond n_out come back as they were sent.
struct StepResult {
  StepResult() {
    tokens.fill(-1);
    runner_up.fill(-1);
  }

  std::array<int32_t, kMaxRequests * kTokensPerRequest> tokens;  // [requests, 6] anchor, drafts
  std::array<int32_t, kMaxBlockRows> runner_up;                  // [requests, kBlockRows]
  std::array<float, kMaxBlockRows> margin{};                     // [requests, kBlockRows]
  std::array<float, kMaxBlockRows> confidence{};                 // [requests, kBlockRows]
};

// A fresh head is idle: windows are empty, rows of an insert are written nowhere.
struct alignas(16) StepHead {
  StepHead() {
    std::iota(block_out_rows.begin(), block_out_rows.end(), 0);
    insert_out_rows.fill(-1);
  }

  std::array<WindowRows, kMaxRequests> windows{};              // [requests]
  std::array<int64_t, kMaxBlockRows> block_positions{};        // [requests, kBlockRows]
  std::array<int64_t, kMaxRowsPerMessage> insert_positions{};  // [rows]
  std::array<int32_t, kMaxRowsPerMessage> insert_out_rows;     // [rows] in the rings; -1: nowhere
  std::array<int32_t, kMaxBlockRows> block_ids{};              // [requests, kBlockRows]
  std::array<int32_t, kMaxBlockRows> block_out_rows;           // 0, 1, 2, ...
  StepResult result;
};

// One such piece of memory over `Bytes`, a buffer of bytes on the host or on the device; there the
// addresses serve as arguments only. Rows are bf16, in the order of insert_positions.
template <class Bytes>
class StepMemory {
 public:
  static int64_t ByteCount(int64_t row_values) {
    return static_cast<int64_t>(sizeof(StepHead)) +
           kMaxRowsPerMessage * row_values * static_cast<int64_t>(sizeof(Bf16));
  }

  StepMemory() = default;
  explicit StepMemory(Bytes bytes) : bytes_(std::move(bytes)) {}

  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }
  StepHead& head() { return *reinterpret_cast<StepHead*>(bytes_.data()); }
  const StepHead& head() const { return *reinterpret_cast<const StepHead*>(bytes_.data()); }
  Bf16* rows() { return reinterpret_cast<Bf16*>(bytes_.data() + sizeof(StepHead)); }

 private:
  Bytes bytes_;
};

}  // namespace tp2
