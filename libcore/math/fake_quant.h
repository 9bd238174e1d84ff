// The KV fake quantization of the reference: a group of values is rounded to e4m3 under one
// power-of-two scale. Source: research note dspark-model 3.4. v41: groups of 32 over the whole
// vector after RoPE; v4: groups of 64 over the dimensions before the rotated ones. Same bits on
// host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "libcore/math/fp8.h"
#include "libcore/math/hd.h"

namespace tp2 {

// 2^ceil(log2(amax / 448)) for the group's largest magnitude, with the reference's floor of 1e-4 on
// amax.
TP2_HD inline float FakeQuantScale(float amax) {
  const float floored = amax > 1e-4f ? amax : 1e-4f;
  const float ratio = floored * (1.0f / 448.0f);
  const uint32_t bits = std::bit_cast<uint32_t>(ratio);
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1u : 0u);
  return std::bit_cast<float>(exponent << 23);
}

// e4m3(clamp(value / scale)) * scale; exact in bf16 because e4m3 has four significant bits.
TP2_HD inline float FakeQuantValue(float value, float scale) {
  float scaled = value / scale;
  if (scaled > kFp8E4m3Max) scaled = kFp8E4m3Max;
  if (scaled < -kFp8E4m3Max) scaled = -kFp8E4m3Max;
  return RoundToFp8E4m3(scaled) * scale;
}

}  // namespace tp2
