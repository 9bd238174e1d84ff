// Errors of exp, log1p and what is built from them, against float64, and their behaviour at the
// edges.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "libcore/math/mixing.h"
#include "libcore/math/swiglu.h"
#include "libcore/math/transcendental.h"

namespace tp2 {
namespace {

// Largest error of `got` in units of the last place of the exact result, over a grid of fp32
// values.
double WorstUlps(float begin, float end, const std::function<float(float)>& got,
                 const std::function<double(double)>& exact) {
  double worst = 0;
  const int steps = 400000;
  for (int i = 0; i <= steps; ++i) {
    const float x = begin + (end - begin) * static_cast<float>(i) / steps;
    const double reference = exact(x);
    const float nearest = std::fabs(static_cast<float>(reference));
    const double ulp = std::nextafterf(nearest, std::numeric_limits<float>::infinity()) - nearest;
    worst = std::max(worst, std::fabs(got(x) - reference) / ulp);
  }
  return worst;
}

TEST(Exp, IsWithinTwoUlps) {
  EXPECT_LT(WorstUlps(-87.0f, 88.5f, Exp, [](double x) { return std::exp(x); }), 2.0);
  EXPECT_LT(WorstUlps(-1.0f, 1.0f, Exp, [](double x) { return std::exp(x); }), 2.0);
}

TEST(Exp, EdgesAreDefined) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-infinity), 0.0f);
  EXPECT_EQ(Exp(infinity), infinity);
  EXPECT_EQ(Exp(89.0f), infinity);
  EXPECT_GT(Exp(-100.0f), 0.0f);  // a subnormal result is kept
  EXPECT_TRUE(std::isnan(Exp(std::nanf(""))));
}

TEST(Log1p, IsWithinThreeUlps) {
  EXPECT_LT(WorstUlps(0.0f, 1.0f, Log1pUnit, [](double x) { return std::log1p(x); }), 3.0);
  EXPECT_LT(WorstUlps(0.0f, 1e-3f, Log1pUnit, [](double x) { return std::log1p(x); }), 3.0);
  EXPECT_EQ(Log1pUnit(0.0f), 0.0f);
}

TEST(Softplus, FollowsTheReferenceOnBothSidesOfItsThreshold) {
  const auto exact = [](double x) { return std::log1p(std::exp(x)); };
  EXPECT_LT(WorstUlps(-80.0f, 25.0f, Softplus, exact), 4.0);
  EXPECT_EQ(Softplus(30.0f), 30.0f);
  EXPECT_TRUE(std::isnan(Softplus(std::nanf(""))));
}

TEST(Sigmoid, SaturatesWithoutNan) {
  EXPECT_EQ(Sigmoid(1e4f), 1.0f);
  EXPECT_EQ(Sigmoid(-1e4f), 0.0f);
  EXPECT_EQ(Sigmoid(0.0f), 0.5f);
  EXPECT_LT(WorstUlps(-30.0f, 30.0f, Sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }),
            4.0);
}

TEST(SwiGlu, ClampsTheGateOnlyFromAbove) {
  EXPECT_EQ(SwiGlu(50.0f, 1.0f, 10.0f), SwiGlu(10.0f, 1.0f, 10.0f));
  EXPECT_NE(SwiGlu(-12.0f, 1.0f, 10.0f), SwiGlu(-10.0f, 1.0f, 10.0f));
  EXPECT_EQ(SwiGlu(1.0f, 50.0f, 10.0f), SwiGlu(1.0f, 10.0f, 10.0f));
  EXPECT_EQ(SwiGlu(1.0f, -50.0f, 10.0f), SwiGlu(1.0f, -10.0f, 10.0f));
  EXPECT_TRUE(std::isnan(SwiGlu(std::nanf(""), 1.0f, 10.0f)));
  EXPECT_TRUE(std::isnan(SwiGlu(1.0f, std::nanf(""), 10.0f)));
}

// The public report: NaN out of the mix when a sigmoid overflows (research note dspark-model 12,
// item 20).
TEST(Mix, HugeBasesGiveNoNan) {
  float dots[kMixOutputs];
  MixParameters parameters;
  for (int i = 0; i < kMixOutputs; ++i) {
    dots[i] = i % 2 == 0 ? 1e3f : -1e3f;
    parameters.base[i] = i % 2 == 0 ? 1e4f : -1e4f;
  }
  for (float& scale : parameters.scale) scale = 1e3f;
  parameters.hc_eps = 1e-6f;
  parameters.sinkhorn_iterations = 20;
  const MixCoefficients mix = ComputeMix(dots, 1.0f, parameters);
  for (int i = 0; i < kStreams; ++i) {
    EXPECT_EQ(mix.pre[i], (i % 2 == 0 ? 1.0f : 0.0f) + 1e-6f);
    EXPECT_EQ(mix.post[i], i % 2 == 0 ? 2.0f : 0.0f);
    for (int j = 0; j < kStreams; ++j) EXPECT_TRUE(std::isfinite(mix.comb[i][j]));
  }
}

TEST(Mix, SinkhornEndsOnColumns) {
  float dots[kMixOutputs];
  MixParameters parameters;
  for (int i = 0; i < kMixOutputs; ++i) {
    dots[i] = 0.1f * static_cast<float>((i * 7) % 11) - 0.5f;
    parameters.base[i] = 0.2f * static_cast<float>((i * 5) % 7) - 0.6f;
  }
  for (float& scale : parameters.scale) scale = 2.0f;
  parameters.hc_eps = 1e-6f;
  parameters.sinkhorn_iterations = 2;
  const MixCoefficients mix = ComputeMix(dots, 1.0f, parameters);
  double worst_row = 0;
  for (int a = 0; a < kStreams; ++a) {
    double column = 0, row = 0;
    for (int b = 0; b < kStreams; ++b) {
      column += mix.comb[b][a];
      row += mix.comb[a][b];
    }
    EXPECT_NEAR(column, 1.0, 3e-6);
    worst_row = std::max(worst_row, std::fabs(row - 1.0));
  }
  EXPECT_GT(worst_row, 1e-5);
}

}  // namespace
}  // namespace tp2
