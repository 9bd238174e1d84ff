#include "libcore/ops/cpu/stream_kernels.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libcore/ops/cpu/stream_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "libcore/ops/cpu/fused_mul_add-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tp2 {
namespace HWY_NAMESPACE {

void CollapseVector(const float* weights, const float* streams, int columns, float* x) {
  const FloatTag d;
  const int step = static_cast<int>(hn::Lanes(d));
  int i = 0;
  for (; i + step <= columns; i += step) {
    FloatVec sum = hn::Mul(hn::Set(d, weights[0]), hn::LoadU(d, streams + i));
    for (int s = 1; s < kStreams; ++s) {
      sum = FusedMulAdd(d, hn::Set(d, weights[s]), hn::LoadU(d, streams + s * columns + i), sum);
    }
    hn::StoreU(sum, d, x + i);
  }
  for (; i < columns; ++i) {
    float h[kStreams];
    for (int s = 0; s < kStreams; ++s) h[s] = streams[s * columns + i];
    x[i] = CollapseElement(weights, h);
  }
}

void UpdateVector(const MixCoefficients& mix, const float* y, int columns, float* streams) {
  const FloatTag d;
  const int step = static_cast<int>(hn::Lanes(d));
  int i = 0;
  for (; i + step <= columns; i += step) {
    FloatVec h[kStreams];
    for (int s = 0; s < kStreams; ++s) h[s] = hn::LoadU(d, streams + s * columns + i);
    const FloatVec added = hn::LoadU(d, y + i);
    for (int j = 0; j < kStreams; ++j) {
      FloatVec sum = hn::Mul(hn::Set(d, mix.post[j]), added);
      for (int s = 0; s < kStreams; ++s) {
        sum = FusedMulAdd(d, hn::Set(d, mix.comb[s][j]), h[s], sum);
      }
      hn::StoreU(sum, d, streams + j * columns + i);
    }
  }
  for (; i < columns; ++i) {
    float h[kStreams];
    for (int s = 0; s < kStreams; ++s) h[s] = streams[s * columns + i];
    for (int j = 0; j < kStreams; ++j) streams[j * columns + i] = UpdateElement(mix, j, y[i], h);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tp2
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tp2 {
namespace {

HWY_EXPORT(CollapseVector);
HWY_EXPORT(UpdateVector);

}  // namespace

void CollapseStreams(const float* weights, const float* streams, int columns, float* x) {
  HWY_DYNAMIC_DISPATCH(CollapseVector)(weights, streams, columns, x);
}

void UpdateStreams(const MixCoefficients& mix, const float* y, int columns, float* streams) {
  HWY_DYNAMIC_DISPATCH(UpdateVector)(mix, y, columns, streams);
}

}  // namespace tp2
#endif  // HWY_ONCE
