#include "libcore/server/row_mirror.h"

#include <algorithm>
#include <cstring>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2::server {
namespace {

constexpr size_t kAlignment = 64;

}  // namespace

void RowMirror::AlignedDelete::operator()(std::byte* bytes) const {
  ::operator delete (bytes, std::align_val_t{kAlignment});
}

RowMirror::RowMirror(const Shape& shape) : shape_(shape), slots_(shape.slot_count) {
  for (Slot& slot : slots_) {
    const size_t slot_bytes = static_cast<size_t>(shape_.ring_rows) * shape_.row_bytes_max;
    slot.rows.reset(
        static_cast<std::byte*>(::operator new (slot_bytes, std::align_val_t{kAlignment})));
    slot.kinds.assign(shape_.ring_rows, RowKind::kTaps);
    slot.row_bytes.assign(shape_.ring_rows, 0);
  }
}

void RowMirror::Store(const InsertRows& rows) {
  if (rows.row_count == 0) return;
  Slot& slot = slots_[rows.slot];
  const std::span<const std::byte> bytes = std::as_bytes(rows.values);
  const size_t row_bytes = bytes.size() / static_cast<size_t>(rows.row_count);
  TP2_CHECK(row_bytes <= shape_.row_bytes_max);
  for (int row = 0; row < rows.row_count; ++row) {
    const size_t ring_row = static_cast<size_t>((rows.position + row) % shape_.ring_rows);
    std::memcpy(slot.rows.get() + ring_row * shape_.row_bytes_max, bytes.data() + row * row_bytes,
                row_bytes);
    slot.kinds[ring_row] = rows.kind;
    slot.row_bytes[ring_row] = row_bytes;
  }
}

absl::Status RowMirror::Restore(int slot, const SlotWindow& window, StepEngine* engine) const {
  TP2_RETURN_IF_ERROR(engine->ResetSlot(slot, window.oldest()));
  const Slot& copy = slots_[slot];
  int64_t position = window.oldest();
  while (position < window.length()) {
    const size_t first = static_cast<size_t>(position % shape_.ring_rows);
    // Rows of the larger kind lie back to back up to the ring's end; others go one by one.
    int count = 1;
    while (copy.row_bytes[first] == shape_.row_bytes_max && count < kMaxRowsPerMessage &&
           position + count < window.length() &&
           first + count < static_cast<size_t>(shape_.ring_rows) &&
           copy.kinds[first + count] == copy.kinds[first]) {
      ++count;
    }
    const std::byte* begin = copy.rows.get() + first * shape_.row_bytes_max;
    const size_t value_count = count * copy.row_bytes[first] / sizeof(Bf16);
    TP2_RETURN_IF_ERROR(
        engine->Insert({.slot = slot,
                        .position = position,
                        .kind = copy.kinds[first],
                        .row_count = count,
                        .values = {reinterpret_cast<const Bf16*>(begin), value_count}}));
    position += count;
  }
  if (engine->window(slot) == window) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInternal,
                   {.what = "restored slot " + std::to_string(slot),
                    .expected = "length " + std::to_string(window.length()),
                    .got = std::to_string(engine->window(slot).length())});
}

}  // namespace tp2::server
