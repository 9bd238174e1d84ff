// The host's copy of the rows every slot holds, so that a failed STEP can be undone: the slot is
// emptied and its rows are put back. Thread-compatible per slot: different slots may be used by
// different threads.
//
// All ring rows are kept, not only the window's: a restored slot then allows the same rollbacks as
// before the failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "libcore/drafter/step_engine.h"

namespace tp2::server {

class RowMirror {
 public:
  struct Shape {
    int slot_count = 0;
    int ring_rows = 0;
    size_t row_bytes_max = 0;  // of the larger row kind
  };
  explicit RowMirror(const Shape& shape);

  // After the engine took the rows; `rows` is valid for the slot's window.
  void Store(const InsertRows& rows);

  // Empties the slot and inserts rows window.oldest() .. window.length()-1 again.
  absl::Status Restore(int slot, const SlotWindow& window, StepEngine* engine) const;

 private:
  struct AlignedDelete {
    void operator()(std::byte* bytes) const;
  };
  struct Slot {
    std::unique_ptr<std::byte, AlignedDelete> rows;  // [ring_rows, row_bytes_max]
    std::vector<RowKind> kinds;                      // [ring_rows]
    std::vector<size_t> row_bytes;                   // [ring_rows]
  };

  Shape shape_;
  std::vector<Slot> slots_;
};

}  // namespace tp2::server
