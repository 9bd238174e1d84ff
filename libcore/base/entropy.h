// Random values that nobody can guess, from the kernel. For reproducible ones see rng.h.
#pragma once

#include <sys/random.h>

#include <type_traits>

#include "libcore/base/check.h"

namespace tp2 {

template <class T>
T RandomValue() {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 256, "one call, never short");
  T value;
  TP2_CHECK(::getrandom(&value, sizeof(value), 0) == static_cast<ssize_t>(sizeof(value)));
  return value;
}

}  // namespace tp2
