// When two logits count as tied: within max(2 bf16 steps, 3 sigma of the noise between the two
// models' logits) in one model. The specification's rule for first mismatches.
#pragma once

#include <algorithm>
#include <cmath>

namespace tp2 {

inline constexpr double kTieSteps = 2;
inline constexpr double kTieSigmas = 3;
// Two experts whose scores are closer than this may be chosen differently by two sound
// implementations; the golden vectors hold expert choices to the same bound. Measured noise of the
// scores may widen it to 3 sigma, up to kMaxRouteTie.
inline constexpr double kRouteTie = 0.01;
inline constexpr double kMaxRouteTie = 0.03;

inline double RouteThreshold(double sigma) {
  return std::clamp(kTieSigmas * sigma, kRouteTie, kMaxRouteTie);
}

// The distance between neighbouring bf16 values at the larger magnitude of the two.
inline double Bf16Step(double a, double b) {
  const double magnitude = std::max(std::fabs(a), std::fabs(b));
  if (magnitude < 0x1p-126) return 0x1p-133;
  return std::exp2(std::floor(std::log2(magnitude)) - 7);
}

inline double TieThreshold(double a, double b, double sigma) {
  return std::max(kTieSteps * Bf16Step(a, b), kTieSigmas * sigma);
}

}  // namespace tp2
