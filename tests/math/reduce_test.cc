// The canonical reduction against a literal statement of its definition.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "libcore/base/rng.h"
#include "libcore/math/reduce.h"

namespace tp2 {
namespace {

// Segment by segment, with a real warp butterfly: every lane adds its partner's value at each
// distance.
float WarpDot(int n, int v, const std::vector<float>& a, const std::vector<float>& b) {
  float total = 0.0f;
  const int segment_values = 256 * v;
  for (int segment = 0; segment * segment_values < n; ++segment) {
    std::vector<float> lanes(32, 0.0f);
    for (int lane = 0; lane < 32; ++lane) {
      for (int sweep = 0; sweep < 8; ++sweep) {
        for (int i = 0; i < v; ++i) {
          const int k = segment * segment_values + (sweep * 32 + lane) * v + i;
          if (k < n) lanes[lane] = std::fma(a[k], b[k], lanes[lane]);
        }
      }
    }
    for (int distance : {16, 8, 4, 2, 1}) {
      std::vector<float> next(32);
      for (int lane = 0; lane < 32; ++lane) next[lane] = lanes[lane] + lanes[lane ^ distance];
      lanes = next;
    }
    total = segment == 0 ? lanes[0] : total + lanes[0];
  }
  return total;
}

template <int V>
void ExpectWarpBits(int n) {
  Rng rng(static_cast<uint64_t>(n) * 31 + V);
  std::vector<float> a, b;
  for (int k = 0; k < n; ++k) {
    a.push_back(rng.Signed());
    b.push_back(rng.Signed() * 3);
  }
  EXPECT_EQ(CanonicalDot<V>(n, a.data(), b.data()), WarpDot(n, V, a, b)) << n << " " << V;
}

TEST(CanonicalReduce, EqualsAWarpsButterfly) {
  for (int n : {1, 7, 32, 128, 133, 1024, 1025, 5120, 20480}) {
    ExpectWarpBits<1>(n);
    ExpectWarpBits<4>(n);
    ExpectWarpBits<8>(n);
    ExpectWarpBits<16>(n);
  }
}

TEST(CanonicalReduce, OrderMattersSoTheTestIsNotVacuous) {
  Rng rng(5);
  std::vector<float> a, b;
  for (int k = 0; k < 5120; ++k) {
    a.push_back(rng.Signed());
    b.push_back(rng.Signed());
  }
  EXPECT_NE(CanonicalDot<4>(5120, a.data(), b.data()), CanonicalDot<16>(5120, a.data(), b.data()));
}

TEST(CanonicalReduce, NothingSumsToZero) { EXPECT_EQ(CanonicalDot<4>(0, nullptr, nullptr), 0.0f); }

}  // namespace
}  // namespace tp2
