// exp, log1p, sigmoid, softplus, silu: our own, in fp32, from IEEE additions, multiplications,
// divisions and fused multiply-adds only, because libm and the device library differ in their last
// bits. Same bits on host and device. Errors were measured against float64 over dense grids
// (tests/math/transcendental_test.cc holds the bounds).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "libcore/math/hd.h"

namespace tp2 {

// 2^exponent for -126 <= exponent <= 127.
TP2_HD inline float PowerOfTwo(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

// e^x; within 2 ulp for results that are normal numbers. exp(-inf) = 0, overflow to +inf, NaN stays
// NaN.
TP2_HD inline float Exp(float x) {
  if (!(x == x)) return x;
  if (x > 88.7228394f) return std::numeric_limits<float>::infinity();
  if (x < -103.972084f) return 0.0f;
  // n = round(x / ln 2) by the magic constant 1.5 * 2^23; r = x - n ln 2 with ln 2 in two parts
  // (Cody and Waite).
  constexpr float kMagic = 12582912.0f;
  const float n = (x * 1.44269504f + kMagic) - kMagic;
  float r = std::fma(n, -0.693359375f, x);
  r = std::fma(n, 2.12194440e-4f, r);
  // Taylor coefficients: |r| <= 0.347, the first term left out is below 2^-27.
  float p = 1.98412698e-4f;
  p = std::fma(p, r, 1.38888889e-3f);
  p = std::fma(p, r, 8.33333333e-3f);
  p = std::fma(p, r, 4.16666667e-2f);
  p = std::fma(p, r, 1.66666667e-1f);
  p = std::fma(p, r, 0.5f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  // Two factors, since n runs from -150 to 128 and 2^n alone may not be a normal number.
  const int whole = static_cast<int>(n);
  const int first = whole / 2;
  return (p * PowerOfTwo(first)) * PowerOfTwo(whole - first);
}

// log(1 + y) for 0 <= y <= 1; within 3 ulp.
TP2_HD inline float Log1pUnit(float y) {
  const float u = 1.0f + y;
  const float lost = y - (u - 1.0f);  // exact: what the rounding of u dropped
  // log(u) = 2 atanh(s), s = (u - 1) / (u + 1) <= 1/3, after halving u when it is above sqrt(2).
  const bool halved = u > 1.41421356f;
  const float m = halved ? u * 0.5f : u;
  const float f = m - 1.0f;
  const float s = f / (2.0f + f);
  const float s2 = s * s;
  float p = 1.81818182e-1f;
  p = std::fma(p, s2, 2.22222222e-1f);
  p = std::fma(p, s2, 2.85714286e-1f);
  p = std::fma(p, s2, 0.4f);
  p = std::fma(p, s2, 6.66666667e-1f);
  // log(m) = f - s (f - s2 p): the leading term is exact, so small y keep their relative precision.
  float log_m = f - s * (f - s2 * p);
  if (halved) log_m = log_m + 6.93147181e-1f;
  return log_m + lost / u;
}

// 1 / (1 + e^-x).
TP2_HD inline float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

// log(1 + e^x) = max(x, 0) + log1p(e^-|x|). The reference's switch to x above 20 is inside half an
// ulp of this.
TP2_HD inline float Softplus(float x) {
  if (!(x == x)) return x;
  return (x > 0.0f ? x : 0.0f) + Log1pUnit(Exp(x > 0.0f ? -x : x));
}

// x * sigmoid(x).
TP2_HD inline float Silu(float x) { return x * Sigmoid(x); }

// 1 / sqrt(x) by two IEEE operations.
TP2_HD inline float Rsqrt(float x) { return 1.0f / std::sqrt(x); }

}  // namespace tp2
