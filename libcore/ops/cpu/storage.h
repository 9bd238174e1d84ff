// Rounding where something is stored or sent whole. Bf16 is the product; float is the test variant
// without storage roundings, which the golden vectors of the unrounded reference are compared with.
#pragma once

#include "libcore/math/bf16.h"

namespace tp2 {

template <class S>
struct Storage;

template <>
struct Storage<Bf16> {
  static Bf16 Store(float value) { return ToBf16(value); }
  static float Load(Bf16 value) { return ToFloat(value); }
};

template <>
struct Storage<float> {
  static float Store(float value) { return value; }
  static float Load(float value) { return value; }
};

// store(value) as it will be read back.
template <class S>
float Rounded(float value) {
  return Storage<S>::Load(Storage<S>::Store(value));
}

}  // namespace tp2
