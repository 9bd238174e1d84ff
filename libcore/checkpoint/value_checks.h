// Checks of tensor contents: every value that arithmetic will read must be finite, and scales must
// be what their format promises. Trellis bits need no check: every pattern is a weight.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "libcore/base/thread_pool.h"
#include "libcore/checkpoint/tensor_view.h"

namespace tp2 {

enum class ValueRule : uint8_t {
  kFinite,         // BF16, F16 or F32 without infinity and NaN; F8_E4M3 without NaN codes
  kChannelScales,  // finite F16, not all zero
  kPowersOfTwo,    // F32, each exactly 2^e with -100 <= e <= 100
};

struct ValueCheck {
  const TensorView* tensor = nullptr;
  ValueRule rule = ValueRule::kFinite;
};

// Reads every byte of the checked tensors, in parallel. The error is that of the first failing
// check in the list's order and names the first bad element, whatever the number of threads.
// Errors: kInvalidArgument.
absl::Status RunValueChecks(const std::vector<ValueCheck>& checks, ThreadPool& pool);

}  // namespace tp2
