// How the integer path's weights lie in device memory, and the states of a tile straight from a
// lane's registers.
//
// A unit is 64 inputs x 64 outputs: 16 tiles, tile i = 4 * (k-tile) + column of tiles. Lane t owns
// positions 8t .. 8t + 7 of every tile (exl3/decode.h): 8K consecutive bits of the tile's string.
// The lane's bits of the 16 tiles follow each other in its 4K words, first bit on top, so that K
// 16-byte loads of a warp fetch a unit whole and coalesced, and every shift below is a constant.
// Order in memory: [n / 64][k / 64][K][32 lanes][4 words]. Source of the idea: research note exl3,
// 6.4d.
#pragma once

#include <cuda_pipeline_primitives.h>

#include <cstdint>

#include "libcore/ops/cuda/ptx.cuh"

namespace tp2::cuda {

inline constexpr int kUnitInputs = 64;
inline constexpr int kUnitOutputs = 64;
inline constexpr int kUnitTiles = 16;

// The lane's part of one unit.
template <int K>
struct LaneUnit {
  uint32_t words[4 * K];

  // slot: [K][32 lanes] in shared memory. A lane reads what it copied itself (CopyUnit), so only it
  // has to wait.
  __device__ void Load(const uint4* slot) {
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const uint4 four = slot[j * 32 + threadIdx.x % 32];
      words[4 * j] = four.x;
      words[4 * j + 1] = four.y;
      words[4 * j + 2] = four.z;
      words[4 * j + 3] = four.w;
    }
  }

  // 32 bits from bit `begin` of the lane's string, first bit on top; zeros behind its end.
  __device__ uint32_t BitsAt(int begin) const {
    const uint32_t first = words[begin / 32];
    if (begin % 32 == 0) return first;
    const uint32_t second = begin / 32 + 1 < 4 * K ? words[begin / 32 + 1] : 0;
    return __funnelshift_l(second, first, begin % 32);
  }
};

// Starts copying the lane's part of a unit from device memory into a slot: CopyLane between the
// lane's own first vectors, CopyUnit between those of the unit. CopyUnit does not call CopyLane:
// with the lane's addresses computed at once, products of three groups on spill (nvcc 13.0).
template <int K>
__device__ inline void CopyLane(const uint4* from, uint4* to) {
#pragma unroll
  for (int j = 0; j < K; ++j) __pipeline_memcpy_async(to + j * 32, from + j * 32, sizeof(uint4));
}
template <int K>
__device__ inline void CopyUnit(const uint4* unit, uint4* slot) {
#pragma unroll
  for (int j = 0; j < K; ++j) {
    const int at = j * 32 + static_cast<int>(threadIdx.x) % 32;
    __pipeline_memcpy_async(slot + at, unit + at, sizeof(uint4));
  }
}

// The 16 bits in front of the lane's bits of tiles `tile` (low half) and `tile` + 1 (high half):
// the end of its neighbours' bits, lane 0's neighbour being lane 31. `tile` is even.
template <int K>
__device__ inline uint32_t BitsInFront(const LaneUnit<K>& unit, int tile) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  const int left = (static_cast<int>(threadIdx.x) + 31) % 32;
  if constexpr (K == 1) {  // a lane has only 8 bits of a tile; the two tiles' are 16 in a row
    const uint32_t own = unit.BitsAt(8 * tile) >> 16;  // first tile's byte above the second's
    const uint32_t near = __shfl_sync(kAll, own, left);
    const uint32_t far = __shfl_sync(kAll, near, left);
    return __byte_perm(near, far, 0x4051);
  } else {
    const uint32_t first = unit.BitsAt(8 * K * (tile + 1) - 16);
    const uint32_t second = unit.BitsAt(8 * K * (tile + 2) - 16);
    return __shfl_sync(kAll, __byte_perm(first, second, 0x7632), left);
  }
}

// The states of the lane's eight positions of tile `tile`. `in_front`: BitsInFront of its pair.
template <int K>
__device__ inline void TileStates(const LaneUnit<K>& unit, int tile, uint32_t in_front,
                                  uint32_t (&states)[8]) {
  // The window, 16 bits in front and then the lane's own, in words that start every 16 bits: every
  // state lies whole in one of them.
  const int own = 8 * K * tile;
  uint32_t window[5];
  window[0] = __byte_perm(unit.BitsAt(own), in_front, tile % 2 == 0 ? 0x5432 : 0x7632);
#pragma unroll
  for (int i = 1; i < 5; ++i)
    window[i] = 8 * K > 16 * (i - 1) ? unit.BitsAt(own + 16 * (i - 1)) : 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int begin = (j + 1) * K;  // of the 16 bits in the window
    const uint32_t word = window[begin / 16];
    // To a whole byte, beside the logic pipe that bounds this loop. States of one word that are a
    // byte apart share it.
    const uint32_t aligned = begin % 8 == 0 ? word : ShiftByMultiplying(word, begin % 8);
    states[j] = begin % 16 < 8 ? aligned >> 16 : __byte_perm(aligned, 0, 0x4421);
  }
}

}  // namespace tp2::cuda
