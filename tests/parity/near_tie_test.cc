#include "libcore/parity/near_tie.h"

#include <gtest/gtest.h>

namespace tp2 {
namespace {

TEST(NearTie, StepIsTheDistanceOfNeighbouringBf16Values) {
  EXPECT_EQ(Bf16Step(1.0, 0.5), 0x1p-7);
  EXPECT_EQ(Bf16Step(1.99, 0.5), 0x1p-7);
  EXPECT_EQ(Bf16Step(0.5, -2.0), 0x1p-6);
  EXPECT_EQ(Bf16Step(0.0, 0.0), 0x1p-133);
}

TEST(NearTie, ThresholdIsTheLargerOfTwoStepsAndThreeSigma) {
  EXPECT_EQ(TieThreshold(4.0, 3.0, 0.0), 2 * 0x1p-5);
  EXPECT_EQ(TieThreshold(4.0, 3.0, 1.0), 3.0);
}

TEST(NearTie, RouteThresholdStaysBetweenItsBounds) {
  EXPECT_EQ(RouteThreshold(0.0), kRouteTie);
  EXPECT_EQ(RouteThreshold(0.005), 0.015);
  EXPECT_EQ(RouteThreshold(1.0), kMaxRouteTie);
}

}  // namespace
}  // namespace tp2
