// In place of libcore/ops/cuda/ptx.cuh: the same functions in C++.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

#include "libcore/math/fp16.h"
#include "tests/cuda_emulation/block_runner.h"

#define TP2_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::tp2::cuda_emulation::DynamicSharedMemory())

namespace tp2::cuda {

// Of mma.m16n8k32 (PTX ISA): lane 4 r + q holds of a the bytes 4 q .. 4 q + 3 of rows r and r + 8,
// then those of the next 16 columns; of b the same bytes of column r; of the sums columns 2 q and
// 2 q + 1 of rows r and r + 8.
struct MmaFragments {
  uint32_t a[4], b[2];
};
struct MmaSums {
  int d[4];
};

inline void MultiplyFragments(void* values) {
  uint8_t a[16][32];
  int8_t b[8][32];
  MmaFragments lanes[32];
  std::memcpy(lanes, values, sizeof(lanes));
  for (int lane = 0; lane < 32; ++lane) {
    const int r = lane / 4, q = lane % 4;
    for (int half = 0; half < 2; ++half) {
      std::memcpy(&a[r][16 * half + 4 * q], &lanes[lane].a[2 * half], 4);
      std::memcpy(&a[r + 8][16 * half + 4 * q], &lanes[lane].a[2 * half + 1], 4);
      std::memcpy(&b[r][16 * half + 4 * q], &lanes[lane].b[half], 4);
    }
  }
  MmaSums sums[32];
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      int sum = 0;
      for (int k = 0; k < 32; ++k) sum += a[row][k] * b[column][k];
      sums[row % 8 * 4 + column / 2].d[row / 8 * 2 + column % 2] = sum;
    }
  }
  std::memcpy(values, sums, sizeof(sums));
}

// d += a b: 16 x 32 u8 by 32 x 8 s8.
inline void MmaU8S8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const MmaFragments own = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const auto* sums = static_cast<const MmaSums*>(
      cuda_emulation::GatherWarp(~0u, &own, sizeof(own), MultiplyFragments));
  for (int i = 0; i < 4; ++i) d[i] += sums[threadIdx.x % 32].d[i];
}

inline uint32_t ShiftByMultiplying(uint32_t word, int shift) { return word << shift; }

inline void WidenHalves(uint32_t halves, float& low, float& high) {
  low = ToFloat(Fp16{static_cast<uint16_t>(halves & 0xFFFFu)});
  high = ToFloat(Fp16{static_cast<uint16_t>(halves >> 16)});
}

inline void Prefetch(const void*) {}
inline unsigned CountArrival(unsigned* arrivals) { return (*arrivals)++; }
inline void AwaitPredecessor() {}

}  // namespace tp2::cuda
