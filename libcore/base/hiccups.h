// How much of its time a busy loop loses to the machine: beside a latency it says what that is
// worth.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libcore/base/clock.h"

namespace tp2 {

struct Hiccups {
  double lost_percent = 0;  // in gaps over 50 us
  double longest_us = 0;
};

// Keeps its core busy for so long.
inline Hiccups MeasureHiccups(int64_t duration_ms) {
  constexpr int64_t kGapNs = 50'000;
  const SteadyClock clock;
  const int64_t begin_ns = clock.NowNs();
  const int64_t end_ns = begin_ns + duration_ms * 1'000'000;
  int64_t last_ns = begin_ns, lost_ns = 0, longest_ns = 0;
  while (last_ns < end_ns) {
    const int64_t now_ns = clock.NowNs();
    const int64_t gap_ns = now_ns - last_ns;
    if (gap_ns > kGapNs) lost_ns += gap_ns;
    longest_ns = std::max(longest_ns, gap_ns);
    last_ns = now_ns;
  }
  return {.lost_percent =
              100.0 * static_cast<double>(lost_ns) / static_cast<double>(last_ns - begin_ns),
          .longest_us = static_cast<double>(longest_ns) / 1e3};
}

}  // namespace tp2
