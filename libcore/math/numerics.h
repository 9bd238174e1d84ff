// The numerics version: one number for everything that decides the bits of a draft (numerics.md
// lists it). It changes only when bits change, and it goes into every result, capture verdict and
// HELLO.
#pragma once

#include <cstdint>

namespace tp2 {

inline constexpr uint64_t kNumericsVersion = 1;

}  // namespace tp2
