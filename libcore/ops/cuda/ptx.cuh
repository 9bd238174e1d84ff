// Every instruction that the op set's kernels write as PTX, and the shared memory that a launch
// gives them. Tests run the kernels on the CPU with another file in this one's place
// (tests/cuda_emulation), so nothing here may know more than its arguments.
#pragma once

#include <cstdint>

// The launch's dynamic shared memory, as an array `name` of `type`, aligned to 16 bytes.
#define TP2_DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]

namespace tp2::cuda {

// d += a b: 16 x 32 u8 by 32 x 8 s8, in the fragments of mma.m16n8k32.
__device__ inline void MmaU8S8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// word << shift by a multiplication: beside the logic pipe, and the compiler may not make a shift
// of it again. 0 < shift < 32.
__device__ inline uint32_t ShiftByMultiplying(uint32_t word, int shift) {
  uint32_t shifted;
  asm("mul.lo.u32 %0, %1, %2;" : "=r"(shifted) : "r"(word), "r"(1u << shift));
  return shifted;
}

// Both fp16 values of a word.
__device__ inline void WidenHalves(uint32_t halves, float& low, float& high) {
  asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
      : "=f"(low), "=f"(high)
      : "r"(halves));
}

// Two e4m3 codes of a word's low half as fp16 values.
#if __CUDA_ARCH__ >= 890
__device__ inline uint32_t HalvesOfE4m3(uint32_t codes) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  return halves;
}
#endif

// Asks for the cache line of `address`.
__device__ inline void Prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Adds 1 and returns what was there. What the thread has written or seen written before is seen by
// whoever counts later; cheaper than __threadfence, which also orders all fences of the card.
__device__ inline unsigned CountArrival(unsigned* arrivals) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(arrivals)
               : "memory");
  return before;
}

// Waits for the kernel in front in the queue to end, and lets the one behind start.
__device__ inline void AwaitPredecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace tp2::cuda
