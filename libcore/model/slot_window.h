// What one slot remembers, as positions: a pure value, shared by the contract (which checks) and
// the drafter (which acts), so that both always agree on gaps, rollbacks and partial windows.
//
// Position p's row sits in ring row p mod ring_rows. Rows oldest() .. length()-1 are held; drafts
// see the newest `window` of them, which may be fewer (a partial window).
#pragma once

#include <algorithm>
#include <cstdint>

namespace tp2 {

enum class InsertVerdict {
  kOk,
  kPositionGap,     // the position lies beyond the length: rows are missing
  kRollbackTooFar,  // the position lies before the oldest row still held
};

class SlotWindow {
 public:
  SlotWindow() = default;
  // An empty slot whose first row will have position `base`.
  explicit SlotWindow(int64_t base) : oldest_(base), length_(base) {}

  int64_t length() const { return length_; }  // the next position, where the anchor stands
  int64_t oldest() const { return oldest_; }
  bool is_empty() const { return length_ == oldest_; }

  // Rows a draft sees, and the position of the first of them.
  int WindowRows(int window) const {
    return static_cast<int>(std::min<int64_t>(window, length_ - oldest_));
  }
  int64_t WindowBegin(int window) const { return length_ - WindowRows(window); }

  // Whether rows may be inserted at `position`: at the length (append) or before it (rollback, then
  // append).
  InsertVerdict Check(int64_t position) const {
    if (position > length_) return InsertVerdict::kPositionGap;
    if (position < oldest_) return InsertVerdict::kRollbackTooFar;
    return InsertVerdict::kOk;
  }

  // Drops rows at and after `position`, then takes `row_count` rows there. Check(position) must be
  // kOk.
  void Insert(int64_t position, int row_count, int ring_rows) {
    length_ = position + row_count;
    oldest_ = std::max(oldest_, length_ - ring_rows);
  }

  friend bool operator==(const SlotWindow&, const SlotWindow&) = default;

 private:
  int64_t oldest_ = 0;
  int64_t length_ = 0;
};

}  // namespace tp2
