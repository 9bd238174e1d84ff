// A warp's sums of an integer product: units of weights, one after the other, against the quanta of
// up to kAllGroups groups of rows, on the integer tensor core. Two ways, with the same integers:
//
// SumBytes, for few groups: the four bytes of a weight's 32-bit product are four u8 elements of
// operand A, and operand B holds an activation's int8 part four times, so that the tensor core adds
// the bytes. Two instructions of it for a tile and group. Fragment mapping: research note exl3,
// 6.4a.
//
// SumWeights, for many: the bytes are added first, and the sum, which has ten bits, is two u8
// elements of two operands A, its low byte and its high one; 256 times the sums of the high ones
// belong to those of the low ones. One instruction for a tile and group, and B holds no part twice,
// but 16 more instructions for a tile and four more for every four tiles and group.
//
// The high and the low part of a row are neighbouring columns of B, so one lane ends up with both.
#pragma once

#include <cstdint>

#include "libcore/math/exl3_codebook.h"
#include "libcore/ops/cuda/device_types.h"
#include "libcore/ops/cuda/trellis.cuh"

namespace tp2::cuda {

inline constexpr int kUnitSide = 4;  // tiles of a unit each way
// Of three groups on, SumWeights is faster on an H200 (head of 129,280 x 5,120 at K = 6: 231 to 225
// us at 10 rows, 312 to 276 at 20); of two it was slower (185 to 193 us).
inline constexpr int kLeastGroupsOfWeights = 3;
// So many leave no registers for the walk.
inline constexpr int kLeastTightGroups = 5;

// What one warp sums: units begin, begin + kParts, ... below end of a column of units.
struct WarpUnits {
  int column;  // of units side by side
  int begin, end;

  template <int K>
  __device__ const uint4* At(const LinearJob& job, int unit) const {
    const unsigned units_per_column = static_cast<unsigned>(job.matrix.k) / kUnitInputs;
    return reinterpret_cast<const uint4*>(job.matrix.trellis) +
           (static_cast<unsigned>(column) * units_per_column + static_cast<unsigned>(unit)) *
               (32 * K);
  }
};

// Words of quanta from one group to the next.
__device__ inline unsigned QuantaStride(const LinearJob& job) {
  return static_cast<unsigned>(job.matrix.k) / kUnitInputs * 128;
}

// Puts the first weights on their way. slots: the warp's own.
template <class Shape, int K>
__device__ inline void StartUnits(const LinearJob& job, const WarpUnits& range, uint4* slots) {
#pragma unroll
  for (int i = 0; i < Shape::kSlots; ++i) {
    const int u = range.begin + i * Shape::kParts;
    if (u < range.end) CopyUnit<K>(range.At<K>(job, u), slots + i * Shape::kUnitVectors);
    __pipeline_commit();
  }
}

// Adds one unit. values: the lane's words of the unit's first k-tile, one per group; then of the
// next unit's. They are loaded a k-tile ahead, from the indices `now` and `next` of the quanta; not
// through the read-only path, because they may be written while this kernel is already there.
// Indices of 32 bits leave registers for the sums.
template <int K, int kGroups>
__device__ inline void AddBytes(const LaneUnit<K>& unit, const uint32_t* quanta, int now, int next,
                                int group_stride, uint32_t (&values)[kGroups],
                                int (&sums)[kUnitSide][kGroups][4]) {
#pragma unroll
  for (int k_tile = 0; k_tile < kUnitSide; ++k_tile) {
    uint32_t four[kGroups][4];  // each value's byte four times
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const uint32_t v = values[g];
      values[g] = quanta[(k_tile + 1 < kUnitSide ? now + k_tile + 1 : next) + g * group_stride];
      four[g][0] = __byte_perm(v, 0, 0x0000);
      four[g][1] = __byte_perm(v, 0, 0x1111);
      four[g][2] = __byte_perm(v, 0, 0x2222);
      four[g][3] = __byte_perm(v, 0, 0x3333);
    }
    uint32_t in_front = 0;
#pragma unroll
    for (int column = 0; column < kUnitSide; ++column) {
      const int tile = kUnitSide * k_tile + column;
      if (column % 2 == 0) in_front = BitsInFront(unit, tile);
      uint32_t p[8];
      TileStates(unit, tile, in_front, p);
#pragma unroll
      for (int j = 0; j < 8; ++j) p[j] = p[j] * kExl3Mul1Multiplier;
      const uint32_t first[4] = {p[0], p[4], p[1], p[5]};
      const uint32_t second[4] = {p[2], p[6], p[3], p[7]};
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        MmaU8S8(sums[column][g], first, four[g][0], four[g][1]);
        MmaU8S8(sums[column][g], second, four[g][2], four[g][3]);
      }
    }
  }
}

// The weights of four states, each the sum of its product's bytes: their low and their high bytes.
struct WeightBytes {
  uint32_t low, high;

  __device__ static WeightBytes Of(const uint32_t* states) {
    uint32_t s[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) s[j] = __dp4a(states[j] * kExl3Mul1Multiplier, 0x01010101u, 0u);
    const uint32_t first = __byte_perm(s[0], s[1], 0x5140);
    const uint32_t second = __byte_perm(s[2], s[3], 0x5140);
    return {__byte_perm(first, second, 0x5410), __byte_perm(first, second, 0x7632)};
  }
};

// Adds the columns of tiles `pair` and `pair` + 1 of a unit. values: the lane's words of its four
// k-tiles, two of which are an operand B.
template <int K, int kGroups>
__device__ inline void AddColumns(const LaneUnit<K>& unit, int pair, const uint4 (&values)[kGroups],
                                  int (&sums)[kUnitSide][kGroups][4]) {
  uint32_t in_front[kUnitSide];
#pragma unroll
  for (int k_tile = 0; k_tile < kUnitSide; ++k_tile) {
    in_front[k_tile] = BitsInFront(unit, kUnitSide * k_tile + pair);
  }
#pragma unroll
  for (int column = pair; column < pair + 2; ++column) {
    uint32_t high[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t low[4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int k_tile = 2 * half + i;
        uint32_t states[8];
        TileStates(unit, kUnitSide * k_tile + column, in_front[k_tile], states);
        const WeightBytes upper = WeightBytes::Of(states), lower = WeightBytes::Of(states + 4);
        low[2 * i] = upper.low;
        low[2 * i + 1] = lower.low;
        high[half][2 * i] = upper.high;
        high[half][2 * i + 1] = lower.high;
      }
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        MmaU8S8(sums[column][g], low, half == 0 ? values[g].x : values[g].z,
                half == 0 ? values[g].y : values[g].w);
      }
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      int high_sums[4] = {};
      MmaU8S8(high_sums, high[0], values[g].x, values[g].y);
      MmaU8S8(high_sums, high[1], values[g].z, values[g].w);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[column][g][i] += 256 * high_sums[i];
    }
  }
}

// The warp's units, started before, summed.
template <class Shape, int K, int kGroups>
__device__ inline void SumBytes(const LinearJob& job, const LinearWorkspace& work,
                                const WarpUnits& range, uint4* slots,
                                int (&sums)[kUnitSide][kGroups][4]) {
  constexpr int kParts = Shape::kParts, kSlots = Shape::kSlots;
  const int group_stride = static_cast<int>(QuantaStride(job));
  const int first = job.first_group * group_stride + 4 * (static_cast<int>(threadIdx.x) % 32);
  int now = first + range.begin * 128;
  const int end = first + range.end * 128;
  uint32_t values[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) values[g] = work.quanta[now + g * group_stride];
  const uint4* next = range.At<K>(job, range.begin + kSlots * kParts) + threadIdx.x % 32;
  int i = 0;
  for (; now < end; now += kParts * 128) {
    uint4* slot = slots + i * Shape::kUnitVectors;
    LaneUnit<K> unit;
    __pipeline_wait_prior(kSlots - 1);
    unit.Load(slot);
    if (now + kSlots * kParts * 128 < end) CopyLane<K>(next, slot + threadIdx.x % 32);
    next += kParts * Shape::kUnitVectors;
    __pipeline_commit();
    AddBytes<K, kGroups>(unit, work.quanta, now,
                         now + kParts * 128 < end ? now + kParts * 128 : now, group_stride, values,
                         sums);
    i = i + 1 == kSlots ? 0 : i + 1;
  }
}

// Where a lane's next weights and quanta lie.
struct LanePlace {
  const uint4* weights;
  unsigned quanta;  // index
};

// The same. The sums leave no registers for the place, so it is in shared memory, or, where that
// spills (nvcc 13.0), computed anew for every unit; and of kLeastTightGroups on the weights of a
// unit are read for each half of its columns.
template <class Shape, int K, int kGroups>
__device__ inline void SumWeights(const LinearJob& job, const LinearWorkspace& work,
                                  const WarpUnits& range, uint4* slots,
                                  int (&sums)[kUnitSide][kGroups][4]) {
  constexpr bool kReadsTwice = kGroups >= kLeastTightGroups, kKeepsPlaces = K == 6;
  constexpr int kParts = Shape::kParts, kAhead = Shape::kSlots * kParts;
  __shared__ LanePlace places[kKeepsPlaces ? Shape::kThreads : 1];
  const auto quanta_at = [&](int u) {
    return static_cast<unsigned>(job.first_group) * QuantaStride(job) +
           static_cast<unsigned>(u) * 128 + threadIdx.x % 32 * 4;
  };
  if constexpr (kKeepsPlaces) {
    places[threadIdx.x] = {range.At<K>(job, range.begin + kAhead) + threadIdx.x % 32,
                           quanta_at(range.begin)};
  }
  int i = 0;
  for (int left = range.end - range.begin; left > 0; left -= kParts) {
    const int u = range.end - left;
    unsigned quanta;
    if constexpr (kKeepsPlaces) {
      quanta = places[threadIdx.x].quanta;
      places[threadIdx.x].quanta = quanta + kParts * 128;
    } else {
      quanta = quanta_at(u);
    }
    const unsigned group_stride = QuantaStride(job);
    uint4 values[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      values[g] = *reinterpret_cast<const uint4*>(work.quanta + (quanta + g * group_stride));
    }
    uint4* slot = slots + i * Shape::kUnitVectors;
    const auto copy_later = [&] {
      const bool is_left = left > kAhead;
      if constexpr (kKeepsPlaces) {
        const uint4* later = places[threadIdx.x].weights;
        places[threadIdx.x].weights = later + kParts * Shape::kUnitVectors;
        if (is_left) CopyLane<K>(later, slot + threadIdx.x % 32);
      } else if (is_left) {
        CopyUnit<K>(range.At<K>(job, u + kAhead), slot);
      }
      __pipeline_commit();
    };
    LaneUnit<K> unit;
    __pipeline_wait_prior(Shape::kSlots - 1);
    unit.Load(slot);
    if constexpr (!kReadsTwice) copy_later();
    AddColumns<K, kGroups>(unit, 0, values, sums);
    if constexpr (kReadsTwice) {
      __syncwarp();
      unit.Load(slot);
      copy_later();
    }
    AddColumns<K, kGroups>(unit, 2, values, sums);
    i = i + 1 == Shape::kSlots ? 0 : i + 1;
  }
}

// The warp's units, started before, summed.
template <class Shape, int K, int kGroups>
__device__ inline void SumUnits(const LinearJob& job, const LinearWorkspace& work,
                                const WarpUnits& range, uint4* slots,
                                int (&sums)[kUnitSide][kGroups][4]) {
  if constexpr (kGroups < kLeastGroupsOfWeights) {
    SumBytes<Shape, K, kGroups>(job, work, range, slots, sums);
  } else {
    SumWeights<Shape, K, kGroups>(job, work, range, slots, sums);
  }
}

}  // namespace tp2::cuda
