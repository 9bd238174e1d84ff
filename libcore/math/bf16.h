// bfloat16 as a storage type: the upper half of an fp32, rounded to nearest even. Same bits on host
// and device, but for those of a NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "libcore/math/hd.h"

namespace tp2 {

struct Bf16 {
  uint16_t bits = 0;
  friend bool operator==(const Bf16&, const Bf16&) = default;
};

TP2_HD inline float ToFloat(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Round to nearest even; overflow goes to infinity; every NaN becomes a quiet NaN, on the host of
// the same sign.
TP2_HD inline Bf16 ToBf16(float value) {
#ifdef __CUDA_ARCH__
  uint16_t rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
  return {rounded};
#else
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((bits >> 16) | 0x0040u)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
#endif
}

TP2_HD inline float RoundToBf16(float value) { return ToFloat(ToBf16(value)); }

}  // namespace tp2
