// fp32 vectors of the CPU kernels and their fused multiply-add. Included once per instruction set.

#if defined(TP2_OPS_CPU_FUSED_MUL_ADD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TP2_OPS_CPU_FUSED_MUL_ADD_INL_H_
#undef TP2_OPS_CPU_FUSED_MUL_ADD_INL_H_
#else
#define TP2_OPS_CPU_FUSED_MUL_ADD_INL_H_
#endif

#include <cmath>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tp2 {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

// BITS: one rounding on every target; targets without the instruction go through the C library's
// exact fmaf.
HWY_INLINE FloatVec FusedMulAdd(FloatTag d, FloatVec a, FloatVec b, FloatVec c) {
#if HWY_NATIVE_FMA
  (void)d;
  return hn::MulAdd(a, b, c);
#else
  HWY_ALIGN float as[HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float bs[HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float cs[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(a, d, as);
  hn::Store(b, d, bs);
  hn::Store(c, d, cs);
  for (size_t i = 0; i < hn::Lanes(d); ++i) cs[i] = std::fma(as[i], bs[i], cs[i]);
  return hn::Load(d, cs);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace tp2
HWY_AFTER_NAMESPACE();

#endif  // TP2_OPS_CPU_FUSED_MUL_ADD_INL_H_
