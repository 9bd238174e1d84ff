// Vector pieces shared by the kernels: the 128-point transform, the input transform of a row, and
// a tile's states. Included once per instruction set.

#if defined(TP2_EXL3_TILE_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TP2_EXL3_TILE_VECTORS_INL_H_
#undef TP2_EXL3_TILE_VECTORS_INL_H_
#else
#define TP2_EXL3_TILE_VECTORS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstdint>

#include "hwy/highway.h"
#include "libcore/exl3/decode.h"
#include "libcore/exl3/linear_kernels.h"
#include "libcore/math/hadamard.h"

HWY_BEFORE_NAMESPACE();
namespace tp2::exl3 {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Most bytes of a tile's bit string with its 2-byte prefix and room for the last 16-byte load.
constexpr int kStreamBytes = 2 + 32 * kMaxBits + 16;

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE void Transform128(float* HWY_RESTRICT values) { Fwht128(values); }

// As below, without vectors: the stream holds the tile's states.
struct TileStream {
  uint16_t states[kTileWeights];
};

struct GroupPattern {
  int bits;
};

HWY_INLINE GroupPattern MakeGroupPattern(int bits) { return {bits}; }

HWY_INLINE void LoadStream(const uint16_t* units, int bits, TileStream& stream) {
  TileStates(units, bits, stream.states);
}

HWY_INLINE void StreamStates(const TileStream& stream, const GroupPattern& /*pattern*/,
                             uint16_t* HWY_RESTRICT states) {
  std::copy_n(stream.states, kTileWeights, states);
}

#else

// Same bits as Fwht128: every butterfly is the same addition and subtraction.
HWY_INLINE void Transform128(float* HWY_RESTRICT values) {
  const hn::FixedTag<float, 4> d;
  for (int i = 0; i < kHadamardPoints; i += 4) {
    const auto v = hn::LoadU(d, values + i);
    const auto near = hn::Shuffle2301(v);
    const auto pairs = hn::OddEven(hn::Sub(near, v), hn::Add(v, near));
    const auto far = hn::Shuffle1032(pairs);
    hn::StoreU(hn::ConcatUpperLower(d, hn::Sub(far, pairs), hn::Add(pairs, far)), d, values + i);
  }
  for (int stride = 4; stride < kHadamardPoints; stride *= 2) {
    for (int begin = 0; begin < kHadamardPoints; begin += 2 * stride) {
      for (int i = begin; i < begin + stride; i += 4) {
        const auto a = hn::LoadU(d, values + i);
        const auto b = hn::LoadU(d, values + i + stride);
        hn::StoreU(hn::Add(a, b), d, values + i);
        hn::StoreU(hn::Sub(a, b), d, values + i + stride);
      }
    }
  }
}

// A tile's bit string as bytes, first bit first, after the two bytes that close the ring: the state
// of position p is bits [(p + 1) * K, (p + 1) * K + 16) of it.
struct TileStream {
  alignas(16) uint8_t bytes[kStreamBytes] = {};
};

HWY_INLINE void LoadStream(const uint16_t* units, int bits, TileStream& stream) {
  const hn::FixedTag<uint8_t, 16> d;
  alignas(16) static constexpr uint8_t kSwapWords[16] = {3,  2,  1, 0, 7,  6,  5,  4,
                                                         11, 10, 9, 8, 15, 14, 13, 12};
  const auto swap = hn::Load(d, kSwapWords);
  const uint8_t* from = reinterpret_cast<const uint8_t*>(units);
  for (int i = 0; i < 32 * bits; i += 16) {
    hn::StoreU(hn::TableLookupBytes(hn::LoadU(d, from + i), swap), d, stream.bytes + 2 + i);
  }
  stream.bytes[0] = stream.bytes[32 * bits];
  stream.bytes[1] = stream.bytes[32 * bits + 1];
}

// Eight positions advance the string by exactly K bytes, so one shuffle serves a whole tile: state
// j of a group is the 16 bits at bit (j + 1) * K of the group's first byte.
struct GroupPattern {
  alignas(16) uint8_t first[16];   // bytes b + 1, b: the big-endian half at byte b
  alignas(16) uint8_t second[16];  // bytes b + 3, b + 2: the half behind it
  alignas(16) uint16_t power[8];   // 2^o, o the bits of the first half that belong to others
  int bits;
};

HWY_INLINE GroupPattern MakeGroupPattern(int bits) {
  GroupPattern pattern = {};
  pattern.bits = bits;
  for (int j = 0; j < 8; ++j) {
    const int bit = (j + 1) * bits;
    const uint8_t b = static_cast<uint8_t>(bit / 8);
    pattern.first[2 * j] = static_cast<uint8_t>(b + 1);
    pattern.first[2 * j + 1] = b;
    pattern.second[2 * j] = static_cast<uint8_t>(b + 3);
    pattern.second[2 * j + 1] = static_cast<uint8_t>(b + 2);
    pattern.power[j] = static_cast<uint16_t>(1 << (bit % 8));
  }
  return pattern;
}

// The 16-byte pieces at from, from + stride, ... side by side.
template <class D8>
HWY_INLINE hn::Vec<D8> LoadPieces(D8 d, const uint8_t* HWY_RESTRICT from, int stride) {
  if constexpr (hn::MaxLanes(D8()) == 16) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D8> dh;
    constexpr int kHalfPieces = static_cast<int>(hn::MaxLanes(D8()) / 32);
    return hn::Combine(d, LoadPieces(dh, from + kHalfPieces * stride, stride),
                       LoadPieces(dh, from, stride));
  }
}

// States of the groups that start at `from`, as many as fill a vector.
template <class D16>
HWY_INLINE hn::Vec<D16> GroupStates(D16 d16, const uint8_t* HWY_RESTRICT from,
                                    const GroupPattern& pattern) {
  const hn::Repartition<uint8_t, D16> d8;
  const auto pieces = LoadPieces(d8, from, pattern.bits);
  const auto first = hn::TableLookupBytes(pieces, hn::LoadDup128(d8, pattern.first));
  const auto second = hn::TableLookupBytes(pieces, hn::LoadDup128(d8, pattern.second));
  const auto power = hn::LoadDup128(d16, pattern.power);
  return hn::Or(hn::Mul(hn::BitCast(d16, first), power),
                hn::MulHigh(hn::BitCast(d16, second), power));
}

// All states of a tile in position order. states: aligned for vectors.
HWY_INLINE void StreamStates(const TileStream& stream, const GroupPattern& pattern,
                             uint16_t* HWY_RESTRICT states) {
  const hn::CappedTag<uint16_t, 32> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const uint8_t* from = stream.bytes;
  for (int p = 0; p < kTileWeights; p += lanes, from += lanes / 8 * pattern.bits) {
    hn::Store(GroupStates(d, from, pattern), d, states + p);
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

// out = in * factors for one step of kStep values. out may be in.
HWY_INLINE void Scale128(const float* in, const Fp16* HWY_RESTRICT factors, float* out) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < kStep; ++i) out[i] = in[i] * ToFloat(factors[i]);
#else
  const hn::CappedTag<float, 8> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> d16;
  const hwy::float16_t* halves = reinterpret_cast<const hwy::float16_t*>(factors);
  for (int i = 0; i < kStep; i += static_cast<int>(hn::Lanes(d))) {
    const auto factor = hn::PromoteTo(d, hn::LoadU(d16, halves + i));
    hn::StoreU(hn::Mul(hn::LoadU(d, in + i), factor), d, out + i);
  }
#endif
}

// r = FWHT(x * suh) of one row, [k]. Returns max |r| taken over bit patterns, so that a NaN counts
// as larger than infinity.
HWY_INLINE float TransformRow(const LinearArgs& args, int row, float* HWY_RESTRICT r) {
  const float* x = args.x + row * args.x_stride;
  uint32_t largest = 0;
  for (int begin = 0; begin < args.matrix.k; begin += kStep) {
    Scale128(x + begin, args.matrix.suh + begin, r + begin);
    Transform128(r + begin);
    for (int i = begin; i < begin + kStep; ++i) {
      largest = std::max(largest, std::bit_cast<uint32_t>(r[i]) & 0x7FFFFFFFu);
    }
  }
  return std::bit_cast<float>(largest);
}

// y = (FWHT(block) * scale) * svh. Destroys `block`.
HWY_INLINE void StoreBlock(const LinearArgs& args, int row, int begin, float scale,
                           float* HWY_RESTRICT block) {
  Transform128(block);
  float* y = args.y + row * args.y_stride + begin;
  for (int i = 0; i < kStep; ++i) block[i] = block[i] * scale;
  Scale128(block, args.matrix.svh + begin, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace tp2::exl3
HWY_AFTER_NAMESPACE();

#endif  // TP2_EXL3_TILE_VECTORS_INL_H_
