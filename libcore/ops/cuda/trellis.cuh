// States of a tile straight from its bit string: lane t's eight positions 8t .. 8t + 7
// (exl3/decode.h).
#pragma once

#include <cstdint>

namespace tp2::cuda {

// Where lane t's window of 7K + 16 bits starts inside the tile's 8K words, fixed per lane.
template <int K>
struct TileWindow {
  static constexpr int kWords = 8 * K;
  static constexpr int kLoads = K <= 4 ? 2 : 3;

  int word[3];
  int shift;

  __device__ explicit TileWindow(int lane) {
    const int start = (8 * lane * K + K - 16 + 32 * kWords) % (32 * kWords);
    shift = start % 32;
    for (int i = 0; i < 3; ++i) word[i] = (start / 32 + i) % kWords;
  }

  // tile: the words of a tile, in shared memory.
  __device__ void States(const uint32_t* tile, uint32_t (&states)[8]) const {
    const uint32_t w0 = tile[word[0]];
    const uint32_t w1 = tile[word[1]];
    const uint32_t w2 = kLoads == 3 ? tile[word[2]] : 0;
    // u: the window with its first bit on top.
    const uint32_t u0 = __funnelshift_l(w1, w0, shift);
    const uint32_t u1 = __funnelshift_l(w2, w1, shift);
    const uint32_t u2 = w2 << shift;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int begin = j * K;  // of the 16 bits
      uint32_t bits;
      if (begin + 16 <= 32) {
        bits = u0 >> (16 - begin);
      } else if (begin < 32) {
        bits = __funnelshift_r(u1, u0, 48 - begin);
      } else if (begin + 16 <= 64) {
        bits = u1 >> (48 - begin);
      } else {
        bits = __funnelshift_r(u2, u1, 80 - begin);
      }
      states[j] = bits & 0xFFFFu;
    }
  }
};

}  // namespace tp2::cuda
