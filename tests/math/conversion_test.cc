// bf16, fp16 and fp8 conversions, exhaustively where the domain is small.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "libcore/base/rng.h"
#include "libcore/math/bf16.h"
#include "libcore/math/fake_quant.h"
#include "libcore/math/fp16.h"
#include "libcore/math/fp8.h"

namespace tp2 {
namespace {

TEST(Bf16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const Bf16 value = {static_cast<uint16_t>(bits)};
    const float wide = ToFloat(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(ToFloat(ToBf16(wide))));
    } else {
      EXPECT_EQ(ToBf16(wide).bits, bits);
    }
  }
}

TEST(Bf16, TiesGoToEvenAndOverflowToInfinity) {
  EXPECT_EQ(ToBf16(0x1.01p0f).bits, 0x3F80);       // halfway between 0x3F80 and 0x3F81
  EXPECT_EQ(ToBf16(0x1.03p0f).bits, 0x3F82);       // halfway between 0x3F81 and 0x3F82
  EXPECT_EQ(ToBf16(0x1.0100001p0f).bits, 0x3F80);  // the literal itself rounds to the tie in fp32
  EXPECT_EQ(ToBf16(0x1.010002p0f).bits, 0x3F81);
  EXPECT_EQ(ToBf16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_EQ(ToBf16(-std::numeric_limits<float>::infinity()).bits, 0xFF80);
}

// Independent statement of fp16 rounding: the nearest of all finite halves, ties to the even
// pattern.
uint16_t NearestHalf(double value) {
  uint16_t best = 0;
  double best_distance = std::numeric_limits<double>::infinity();
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const double candidate =
        bits < 0x400 ? std::ldexp(bits, -24) : std::ldexp(1024 + (bits & 1023), (bits >> 10) - 25);
    const double distance = std::fabs(value - candidate);
    if (distance < best_distance || (distance == best_distance && bits % 2 == 0)) {
      best = static_cast<uint16_t>(bits);
      best_distance = distance;
    }
  }
  return best;
}

TEST(Fp16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float wide = ToFloat(Fp16{static_cast<uint16_t>(bits)});
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(ToFloat(ToFp16(wide))));
    } else {
      EXPECT_EQ(ToFp16(wide).bits, bits);
    }
  }
}

TEST(Fp16, RoundsToTheNearestHalf) {
  Rng rng(1);
  for (int i = 0; i < 300; ++i) {
    const float magnitude =
        std::ldexp(1.0f + std::fabs(rng.Signed()), static_cast<int>(rng.Below(42)) - 27);
    if (magnitude >= 65504.0f) continue;
    EXPECT_EQ(ToFp16(magnitude).bits, NearestHalf(magnitude)) << magnitude;
    EXPECT_EQ(ToFp16(-magnitude).bits, NearestHalf(magnitude) | 0x8000);
  }
  EXPECT_EQ(ToFp16(65519.996f).bits, 0x7BFF);
  EXPECT_EQ(ToFp16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(ToFp16(0x1p-25f).bits, 0x0000);    // tie with zero
  EXPECT_EQ(ToFp16(0x1.8p-24f).bits, 0x0002);  // tie between 1 and 2 units
}

TEST(Fp8E4m3, ValuesAreThoseOfTheFormat) {
  EXPECT_EQ(ToFloat(Fp8E4m3{0x00}), 0.0f);
  EXPECT_EQ(ToFloat(Fp8E4m3{0x01}), 0x1p-9f);
  EXPECT_EQ(ToFloat(Fp8E4m3{0x08}), 0x1p-6f);
  EXPECT_EQ(ToFloat(Fp8E4m3{0x38}), 1.0f);
  EXPECT_EQ(ToFloat(Fp8E4m3{0x7E}), 448.0f);
  EXPECT_EQ(ToFloat(Fp8E4m3{0xBC}), -1.5f);
  EXPECT_TRUE(std::isnan(ToFloat(Fp8E4m3{0x7F})));
  EXPECT_TRUE(IsNan(Fp8E4m3{0xFF}));
  EXPECT_FALSE(IsNan(Fp8E4m3{0x7E}));
}

TEST(Fp8E4m3, RoundsToTheNearestValueTiesToEven) {
  for (int byte = 0; byte < 0x7E; ++byte) {
    const float low = ToFloat(Fp8E4m3{static_cast<uint8_t>(byte)});
    const float high = ToFloat(Fp8E4m3{static_cast<uint8_t>(byte + 1)});
    const float middle = (low + high) / 2;  // exact in fp32
    EXPECT_EQ(RoundToFp8E4m3(low), low);
    EXPECT_EQ(RoundToFp8E4m3(-low), -low);
    EXPECT_EQ(RoundToFp8E4m3(middle), byte % 2 == 0 ? low : high) << byte;
    EXPECT_EQ(RoundToFp8E4m3(std::nextafterf(middle, 0.0f)), low) << byte;
    EXPECT_EQ(RoundToFp8E4m3(std::nextafterf(middle, 1000.0f)), high) << byte;
  }
  EXPECT_TRUE(std::isnan(RoundToFp8E4m3(std::nanf(""))));
}

TEST(FakeQuant, ScaleIsTheNextPowerOfTwo) {
  EXPECT_EQ(FakeQuantScale(448.0f), 1.0f);
  EXPECT_EQ(FakeQuantScale(449.0f), 2.0f);
  EXPECT_EQ(FakeQuantScale(224.0f), 0.5f);
  EXPECT_EQ(FakeQuantScale(0.0f), 0x1p-22f);  // the floor: 1e-4 / 448 = 2.2e-7
  EXPECT_EQ(FakeQuantScale(1e-5f), FakeQuantScale(1e-4f));
}

TEST(FakeQuant, ResultIsExactInBf16) {
  Rng rng(2);
  for (int i = 0; i < 2000; ++i) {
    const float value = rng.Signed() * 7.0f;
    const float quantized = FakeQuantValue(value, FakeQuantScale(7.0f));
    EXPECT_EQ(RoundToBf16(quantized), quantized);
    EXPECT_NEAR(quantized, value, 7.0f / 16);
  }
}

}  // namespace
}  // namespace tp2
