// FP8 E4M3 (the "fn" form: no infinities, 0x7F and 0xFF are NaN, largest value 448). Same bits on
// host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "libcore/math/hd.h"

namespace tp2 {

struct Fp8E4m3 {
  uint8_t bits = 0;
  friend bool operator==(const Fp8E4m3&, const Fp8E4m3&) = default;
};

inline constexpr float kFp8E4m3Max = 448.0f;

TP2_HD inline bool IsNan(Fp8E4m3 value) { return (value.bits & 0x7Fu) == 0x7Fu; }

TP2_HD inline float ToFloat(Fp8E4m3 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x80u) << 24;
  const uint32_t exponent = (value.bits >> 3) & 0xFu;
  const uint32_t mantissa = value.bits & 0x7u;
  if (IsNan(value)) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-9
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (mantissa << 20));
}

// The e4m3 value nearest to `value`, ties to even, as fp32; |value| must be at most 448 (NaN passes
// through). Adding and subtracting 1.5 * 2^23 ulps of the target grid rounds in hardware, once.
TP2_HD inline float RoundToFp8E4m3(float value) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu;
  uint32_t exponent = magnitude >> 23;  // biased; the e4m3 grid is 2^(exponent-3), at least 2^-9
  if (exponent < 121) exponent = 121;   // 2^-6 is the smallest normal
  // 1.5 * 2^(grid + 23) with grid = exponent - 127 - 3
  const float magic = std::bit_cast<float>(((exponent + 20) << 23) | 0x400000u);
  return (value + magic) - magic;
}

}  // namespace tp2
