// Compiles the kernels once per vector instruction set and picks the best one at run time.
#include "libcore/exl3/linear_kernels.h"

// The kernels keep arrays of vectors, which sizeless vector types cannot do.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libcore/exl3/linear_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "libcore/exl3/linear_half-inl.h"
#include "libcore/exl3/linear_integer-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tp2::exl3 {
namespace HWY_NAMESPACE {

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace tp2::exl3
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tp2::exl3 {

HWY_EXPORT(PrepareIntegerRow);
HWY_EXPORT(ComputeIntegerBlock);
HWY_EXPORT(PrepareHalfRow);
HWY_EXPORT(ComputeHalfBlock);
HWY_EXPORT(TargetName);

const char* KernelTargetName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

void PrepareRow(const LinearArgs& args, int row, const PreparedRows& prepared, float* scratch) {
  if (HasPortableBits(args.matrix)) {
    HWY_DYNAMIC_DISPATCH(PrepareIntegerRow)(args, row, prepared, scratch);
  } else {
    HWY_DYNAMIC_DISPATCH(PrepareHalfRow)(args, row, prepared, scratch);
  }
}

void ComputeBlock(const LinearArgs& args, const PreparedRows& prepared, int block,
                  int64_t* scratch) {
  if (HasPortableBits(args.matrix)) {
    HWY_DYNAMIC_DISPATCH(ComputeIntegerBlock)(args, prepared, block, scratch);
  } else {
    HWY_DYNAMIC_DISPATCH(ComputeHalfBlock)(args, prepared, block, scratch);
  }
}

}  // namespace tp2::exl3
#endif  // HWY_ONCE
