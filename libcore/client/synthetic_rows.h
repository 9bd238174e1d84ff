// Made-up context rows for demos and tests: every value is a function of (seed, slot, position,
// index), so that the same position always holds the same row, whoever makes it.
#pragma once

#include <cstdint>
#include <vector>

#include "libcore/base/rng.h"
#include "libcore/math/bf16.h"

namespace tp2::client {

struct RowRange {
  uint64_t seed = 0;
  int slot = 0;
  int64_t position = 0;
  int row_count = 0;
  int row_values = 0;
};

// bf16 values in [-1, 1), appended row-major to `out`.
inline void AppendSyntheticRows(const RowRange& range, std::vector<Bf16>* out) {
  for (int row = 0; row < range.row_count; ++row) {
    Rng rng(
        Mix64(StreamOf(range.seed, "rows") ^ Mix64((static_cast<uint64_t>(range.slot) << 48) ^
                                                   static_cast<uint64_t>(range.position + row))));
    for (int i = 0; i < range.row_values; ++i) {
      // -1 is kept by the grid; +1 cannot be rounded up to, because 1 - 2^-8 is the bf16 below it.
      const float value = rng.Signed();
      out->push_back(ToBf16(value > 0.99609375f ? 0.99609375f : value));
    }
  }
}

}  // namespace tp2::client
