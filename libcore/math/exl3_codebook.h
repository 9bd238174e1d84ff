// The three EXL3 codebooks: what a 16-bit trellis state means. Integer arithmetic is modulo 2^32;
// every half is rounded once, to nearest even. Same bits on host and device.
// Source of the formulas: research note exl3, section 2.4.
#pragma once

#include <cstdint>

#include "libcore/math/fp16.h"
#include "libcore/math/hd.h"

namespace tp2 {

inline constexpr uint32_t kExl3Mul1Multiplier = 0x83DCD12Du;
inline constexpr uint32_t kExl3McgMultiplier = 0xCBAC1FEDu;
inline constexpr uint32_t kExl3InstMultiplier = 89226354u;
inline constexpr uint32_t kExl3InstAddend = 64248484u;

// The exact mul1 weight is (kExl3Mul1Slope * byte_sum - kExl3Mul1Offset) * 2^-17.
inline constexpr int32_t kExl3Mul1Slope = 887;
inline constexpr int32_t kExl3Mul1Offset = 452608;
inline constexpr float kExl3Mul1Unit = 0x1p-17f;

// The 32-bit product whose four bytes are the u8 operands of an integer tensor core.
TP2_HD constexpr uint32_t Exl3Mul1Product(uint16_t state) { return state * kExl3Mul1Multiplier; }

// Sum of the four bytes of the mul1 product, 0 .. 1005 over all states.
TP2_HD constexpr int32_t Exl3ByteSum(uint16_t state) {
  const uint32_t product = Exl3Mul1Product(state);
  return static_cast<int32_t>((product & 0xFFu) + ((product >> 8) & 0xFFu) +
                              ((product >> 16) & 0xFFu) + (product >> 24));
}

// Numerator of the exact mul1 weight over 2^17: 20 bits and a sign.
TP2_HD constexpr int32_t Exl3Mul1Numerator(uint16_t state) {
  return kExl3Mul1Slope * Exl3ByteSum(state) - kExl3Mul1Offset;
}

// mul1 as fp16. The reference computes half(1024 + b) * c + d in one fused step; both forms round
// the same exact value once, because the numerator is exact in fp32.
TP2_HD inline Fp16 Exl3Mul1Value(uint16_t state) {
  return ToFp16(static_cast<float>(Exl3Mul1Numerator(state)) * kExl3Mul1Unit);
}

// mcg and 3INST: the sum of the product's halves after their exponents are forced into range. Both
// addends are multiples of 2^-13 below 2 in magnitude, so their fp32 sum is exact.
TP2_HD inline Fp16 Exl3HalfPairValue(uint32_t product) {
  const uint32_t pair = (product & 0x8FFF8FFFu) ^ 0x3B603B60u;
  const float low = ToFloat(Fp16{static_cast<uint16_t>(pair & 0xFFFFu)});
  const float high = ToFloat(Fp16{static_cast<uint16_t>(pair >> 16)});
  return ToFp16(low + high);
}

TP2_HD inline Fp16 Exl3McgValue(uint16_t state) {
  return Exl3HalfPairValue(state * kExl3McgMultiplier);
}

TP2_HD inline Fp16 Exl3InstValue(uint16_t state) {
  return Exl3HalfPairValue(state * kExl3InstMultiplier + kExl3InstAddend);
}

}  // namespace tp2
