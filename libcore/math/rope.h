// Rotary position embedding of adjacent pairs, and the table behind it.
// Source: DeepSeek's reference (research note dspark-model 3.2): frequency i is fp32(1 /
// fp32(theta^(2i/d))), two roundings; the angle is fp32(position * frequency), one rounding; both
// matter near position 300,000.
#pragma once

#include <cmath>
#include <cstdint>

#include "libcore/math/hd.h"

namespace tp2 {

struct CosSin {
  float cos;
  float sin;
};

// Frequency of pair `pair` of `rope_dims` rotated dimensions. Host only (tables are built on the
// host).
inline float RopeFrequency(double theta, int rope_dims, int pair) {
  const double power = std::pow(theta, 2.0 * pair / rope_dims);
  return 1.0f / static_cast<float>(power);
}

// cos and sin of an fp32 angle, 0 <= angle <= 2^21, rounded to fp32 from float64 results that are
// good to 2^-50. Own code because libm's last bit differs between C libraries; only +, - and * of
// doubles are used, unfused.
inline CosSin RopeCosSin(float angle) {
  const double t = static_cast<double>(angle);
  // k = round(t * 2 / pi); pi/2 in three parts of 33, 33 and 53 bits, so that k * part is exact for
  // k < 2^20.
  const double k = std::nearbyint(t * 0.63661977236758138);
  double r = t - k * 0x1.921fb544p+0;
  r = r - k * 0x1.0b4611a6p-34;
  r = r - k * 0x1.3198a2e037073p-69;
  const double r2 = r * r;
  // Taylor series on |r| <= pi/4: the first terms left out are below 2^-56 (sin) and 2^-60 (cos).
  double sine = -1.0 / 1307674368000.0;
  sine = sine * r2 + 1.0 / 6227020800.0;
  sine = sine * r2 - 1.0 / 39916800.0;
  sine = sine * r2 + 1.0 / 362880.0;
  sine = sine * r2 - 1.0 / 5040.0;
  sine = sine * r2 + 1.0 / 120.0;
  sine = sine * r2 - 1.0 / 6.0;
  sine = r + (r * r2) * sine;
  double cosine = 1.0 / 20922789888000.0;
  cosine = cosine * r2 - 1.0 / 87178291200.0;
  cosine = cosine * r2 + 1.0 / 479001600.0;
  cosine = cosine * r2 - 1.0 / 3628800.0;
  cosine = cosine * r2 + 1.0 / 40320.0;
  cosine = cosine * r2 - 1.0 / 720.0;
  cosine = cosine * r2 + 1.0 / 24.0;
  cosine = cosine * r2 - 0.5;
  cosine = 1.0 + r2 * cosine;
  switch (static_cast<int64_t>(k) & 3) {
    case 0:
      return {static_cast<float>(cosine), static_cast<float>(sine)};
    case 1:
      return {static_cast<float>(-sine), static_cast<float>(cosine)};
    case 2:
      return {static_cast<float>(-cosine), static_cast<float>(-sine)};
    default:
      return {static_cast<float>(sine), static_cast<float>(-cosine)};
  }
}

// Table row of one position: rope_dims / 2 pairs. `frequencies` from RopeFrequency.
inline void RopeTableRow(int64_t position, const float* frequencies, int pair_count, CosSin* row) {
  const float p = static_cast<float>(position);
  for (int i = 0; i < pair_count; ++i) row[i] = RopeCosSin(p * frequencies[i]);
}

// Rotates the pair (a, b) by +angle. Same bits on host and device.
TP2_HD inline void RopePair(CosSin t, float& a, float& b) {
  const float rotated = std::fma(a, t.cos, -(b * t.sin));
  b = std::fma(a, t.sin, b * t.cos);
  a = rotated;
}

// Rotates the pair (a, b) by -angle.
TP2_HD inline void RopePairInverse(CosSin t, float& a, float& b) {
  RopePair({t.cos, -t.sin}, a, b);
}

}  // namespace tp2
