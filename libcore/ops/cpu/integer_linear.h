// How the CPU op set multiplies by a packed matrix. The product uses this policy; tests put an
// exact dense product in its place to compare everything else with the reference at fp32 precision.
#pragma once

#include <span>

#include "libcore/base/thread_pool.h"
#include "libcore/exl3/linear.h"

namespace tp2 {

struct IntegerLinear {
  void Run(std::span<const exl3::LinearArgs> batch, ThreadPool& pool) const {
    exl3::LinearBatch(batch, pool);
  }
};

}  // namespace tp2
