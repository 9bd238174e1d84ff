// The context keys of one request, as kernels and the CPU op set take them.
#pragma once

#include <cstdint>

namespace tp2 {

// `row_count` rows of `slot`'s ring from position `begin`.
struct WindowRows {
  int64_t begin = 0;
  int32_t slot = 0;
  int32_t row_count = 0;
};

}  // namespace tp2
