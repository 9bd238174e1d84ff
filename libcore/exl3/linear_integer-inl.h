// The exact integer path (linear.h). Weights travel as u = b - 510 (-510 .. 495), so that
// T = 887 * sum(v u) - 238 * sum(v), and the products of two neighbouring k fit one 16-bit
// multiply-add. Included once per instruction set.

#if defined(TP2_EXL3_LINEAR_INTEGER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TP2_EXL3_LINEAR_INTEGER_INL_H_
#undef TP2_EXL3_LINEAR_INTEGER_INL_H_
#else
#define TP2_EXL3_LINEAR_INTEGER_INL_H_
#endif

#include <cmath>
#include <limits>

#include "libcore/exl3/tile_vectors-inl.h"
#include "libcore/math/exl3_codebook.h"

HWY_BEFORE_NAMESPACE();
namespace tp2::exl3 {
namespace HWY_NAMESPACE {

constexpr int kCentre = 510;
constexpr int kStepTiles = kStep / kTile;
// Weights of one step and 16 outputs, in position order.
using StepWeights = int16_t[kStepTiles * kTileWeights];

// Rows per pass over a step's weights: 2 * 5 accumulators leave room in 16 vector registers.
constexpr int kRowGroup = 5;

// Order of the 16 outputs of a tile in the sums: {c, c + 8, c + 1, c + 9} for c = 0, 2, 4, 6.
HWY_INLINE int SumColumn(int i) { return 2 * (i / 4) + 8 * (i & 1) + ((i >> 1) & 1); }

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE void DecodeTileSums(const TileStream& stream, const GroupPattern& /*pattern*/,
                               int16_t* HWY_RESTRICT w) {
  for (int p = 0; p < kTileWeights; ++p) {
    w[p] = static_cast<int16_t>(Exl3ByteSum(stream.states[p]) - kCentre);
  }
}

template <int kRows>
HWY_INLINE void AddStep(const StepWeights& w, const int16_t* HWY_RESTRICT v,
                        int64_t* HWY_RESTRICT sums) {
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kTile; ++i) {
      const int column = SumColumn(i);
      int32_t sum = 0;
      for (int tile = 0; tile < kStepTiles; ++tile) {
        const int16_t* weights = w + tile * kTileWeights + (column % 8) * 32 + (column / 8) * 4;
        const int16_t* values = v + row * kStepActivations + tile * 32 + (column / 8) * 4;
        for (int a = 0; a < 32; a += 8) {
          for (int j = a; j < a + 4; ++j) sum += weights[j] * values[j];
        }
      }
      sums[row * kStep + i] += sum;
    }
  }
}

#else

#if HWY_COMPILER_GCC_ACTUAL
#define TP2_UNROLL _Pragma("GCC unroll 8")
#else
#define TP2_UNROLL _Pragma("clang loop unroll(full)")
#endif

// As wide as one output column of a tile at most: 32 weights.
using DI16 = hn::CappedTag<int16_t, 32>;
using DI32 = hn::Repartition<int32_t, DI16>;

// The centred byte sums of a tile, in position order.
HWY_INLINE void DecodeTileSums(const TileStream& stream, const GroupPattern& pattern,
                               int16_t* HWY_RESTRICT w) {
  const DI16 di16;
  const hn::RebindToUnsigned<DI16> d;
  const auto low_multiplier = hn::Set(d, static_cast<uint16_t>(kExl3Mul1Multiplier & 0xFFFFu));
  const auto high_multiplier = hn::Set(d, static_cast<uint16_t>(kExl3Mul1Multiplier >> 16));
  const auto low_byte = hn::Set(d, uint16_t{0xFF});
  const auto centre = hn::Set(d, uint16_t{kCentre});
  const int lanes = static_cast<int>(hn::Lanes(d));
  const uint8_t* from = stream.bytes;
  for (int p = 0; p < kTileWeights; p += lanes, from += lanes / 8 * pattern.bits) {
    const auto state = GroupStates(d, from, pattern);
    const auto low = hn::Mul(state, low_multiplier);
    const auto high = hn::Add(hn::MulHigh(state, low_multiplier), hn::Mul(state, high_multiplier));
    const auto even = hn::Add(hn::And(low, low_byte), hn::And(high, low_byte));
    const auto odd = hn::Add(hn::ShiftRight<8>(low), hn::ShiftRight<8>(high));
    const auto sum = hn::Sub(hn::Add(even, odd), centre);  // below zero wraps as int16 does
    hn::Store(hn::BitCast(di16, sum), di16, w + p);
  }
}

template <class V>
HWY_INLINE hn::Vec<hn::FixedTag<int32_t, 4> > FoldBlocks(V v) {
  using D = hn::DFromV<V>;
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> dh;
    return FoldBlocks(hn::Add(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)));
  }
}

// Adds a step of 16 outputs to the sums of kRows rows. v: [kRows, kStepActivations]; sums: row
// stride 128.
template <int kRows>
HWY_INLINE void AddStep(const StepWeights& w, const int16_t* HWY_RESTRICT v,
                        int64_t* HWY_RESTRICT sums) {
  const DI16 d16;
  const DI32 d32;
  const hn::FixedTag<int32_t, 4> d4;
  const hn::FixedTag<int64_t, 2> d64;
  const hn::Half<decltype(d4)> d2;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(DI16()));
  using V32 = hn::Vec<DI32>;
  for (int c = 0; c < 8; c += 2) {
    V32 left[kRows], right[kRows];
    V32 left_odd[kRows], right_odd[kRows];  // unused where neighbours meet in one instruction
    TP2_UNROLL
    for (int row = 0; row < kRows; ++row) {
      left[row] = right[row] = left_odd[row] = right_odd[row] = hn::Zero(d32);
    }
    for (int tile = 0; tile < kStepTiles; ++tile) {
      TP2_UNROLL
      for (int lane = 0; lane < 32; lane += kLanes) {
        const int16_t* weights = w + tile * kTileWeights + c * 32 + lane;
        const auto w0 = hn::Load(d16, weights);
        const auto w1 = hn::Load(d16, weights + 32);
        TP2_UNROLL
        for (int row = 0; row < kRows; ++row) {
          const auto values = hn::Load(d16, v + row * kStepActivations + tile * 32 + lane);
          left[row] = hn::ReorderWidenMulAccumulate(d32, w0, values, left[row], left_odd[row]);
          right[row] = hn::ReorderWidenMulAccumulate(d32, w1, values, right[row], right_odd[row]);
        }
      }
    }
    TP2_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const auto a = FoldBlocks(hn::RearrangeToOddPlusEven(left[row], left_odd[row]));
      const auto b = FoldBlocks(hn::RearrangeToOddPlusEven(right[row], right_odd[row]));
      const auto sum = hn::Add(hn::ConcatEven(d4, b, a), hn::ConcatOdd(d4, b, a));
      int64_t* to = sums + row * kStep + 2 * c;
      const auto low = hn::PromoteTo(d64, hn::LowerHalf(d2, sum));
      const auto high = hn::PromoteTo(d64, hn::UpperHalf(d2, sum));
      hn::Store(hn::Add(hn::Load(d64, to), low), d64, to);
      hn::Store(hn::Add(hn::Load(d64, to + 2), high), d64, to + 2);
    }
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

HWY_INLINE void AddStepRows(const StepWeights& w, const int16_t* v, int rows, int64_t* sums) {
  for (; rows >= kRowGroup; rows -= kRowGroup) {
    AddStep<kRowGroup>(w, v, sums);
    v += kRowGroup * kStepActivations;
    sums += kRowGroup * kStep;
  }
  if (rows == 1) AddStep<1>(w, v, sums);
  if (rows == 2) AddStep<2>(w, v, sums);
  if (rows == 3) AddStep<3>(w, v, sums);
  if (rows == 4) AddStep<4>(w, v, sums);
}

// quanta = round to nearest even of r * factor, one step. Returns their sum.
HWY_INLINE int64_t Quantize(const float* HWY_RESTRICT r, float factor,
                            int16_t* HWY_RESTRICT quanta) {
  const hn::CappedTag<float, 8> d;
  const hn::RebindToSigned<decltype(d)> d32;
  const hn::Rebind<int16_t, decltype(d)> d16;
  // Adding 1.5 * 2^23 leaves the value rounded to nearest even in the low mantissa bits.
  const auto magic = hn::Set(d, 0x1.8p23f);
  auto sum = hn::Zero(d32);
  for (int i = 0; i < kStep; i += static_cast<int>(hn::Lanes(d))) {
    const auto scaled = hn::Mul(hn::LoadU(d, r + i), hn::Set(d, factor));
    const auto quantum = hn::Sub(hn::BitCast(d32, hn::Add(scaled, magic)), hn::BitCast(d32, magic));
    sum = hn::Add(sum, quantum);
    hn::StoreU(hn::DemoteTo(d16, quantum), d16, quanta + i);
  }
  return hn::GetLane(hn::SumOfLanes(d32, sum));
}

void PrepareIntegerRow(const LinearArgs& args, int row, const PreparedRows& prepared,
                       float* HWY_RESTRICT r) {
  const float amax = TransformRow(args, row, r);
  const bool is_finite = std::isfinite(amax);
  prepared.scales[row] =
      is_finite ? amax / kMaxQuantum * 0x1p-24f : std::numeric_limits<float>::quiet_NaN();
  const float factor = is_finite && amax >= 0x1p-100f ? kMaxQuantum / amax : 0.0f;
  int64_t sum = 0;
  for (int begin = 0; begin < args.matrix.k; begin += kStep) {
    if (!is_finite) std::fill_n(r + begin, kStep, 0.0f);
    alignas(32) int16_t quanta[kStep];
    sum += Quantize(r + begin, factor, quanta);
    int16_t* to = prepared.quanta +
                  (static_cast<int64_t>(begin / kStep) * args.rows + row) * kStepActivations;
    for (int tile = 0; tile < kStep; tile += kTile) {
      for (int a = tile; a < tile + 8; a += 2, to += 8) {
        to[0] = to[4] = quanta[a];
        to[1] = to[5] = quanta[a + 1];
        to[2] = to[6] = quanta[a + 8];
        to[3] = to[7] = quanta[a + 9];
      }
    }
  }
  prepared.sums[row] = sum;
}

void ComputeIntegerBlock(const LinearArgs& args, const PreparedRows& prepared, int block,
                         int64_t* HWY_RESTRICT sums) {
  const MatrixView& matrix = args.matrix;
  HWY_ALIGN StepWeights w;
  TileStream streams[kStepTiles];
  const GroupPattern pattern = MakeGroupPattern(matrix.bits);
  std::fill_n(sums, static_cast<int64_t>(args.rows) * kStep, int64_t{0});
  for (int step = 0; step < matrix.k / kStep; ++step) {
    const uint16_t* corner = matrix.trellis +
                             static_cast<ptrdiff_t>(step) * kStepTiles * matrix.tile_row_pitch +
                             static_cast<ptrdiff_t>(block) * kStepTiles * matrix.tile_units();
    const int16_t* v = prepared.quanta + static_cast<int64_t>(step) * args.rows * kStepActivations;
    for (int j = 0; j < kStepTiles; ++j, corner += matrix.tile_units()) {
      // All streams first: a load that overlaps a store still in flight would stall.
      for (int i = 0; i < kStepTiles; ++i) {
        LoadStream(corner + i * matrix.tile_row_pitch, matrix.bits, streams[i]);
      }
      for (int i = 0; i < kStepTiles; ++i) {
        DecodeTileSums(streams[i], pattern, w + i * kTileWeights);
      }
      AddStepRows(w, v, args.rows, sums + j * kTile);
    }
  }
  for (int row = 0; row < args.rows; ++row) {
    const int64_t offset = (kExl3Mul1Offset - kExl3Mul1Slope * kCentre) * prepared.sums[row];
    float totals[kStep];
    for (int i = 0; i < kStep; ++i) {
      const int64_t total = kExl3Mul1Slope * sums[row * kStep + i] - offset;
      totals[i / kTile * kTile + SumColumn(i % kTile)] = static_cast<float>(total);
    }
    StoreBlock(args, row, block * kStep, prepared.scales[row], totals);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tp2::exl3
HWY_AFTER_NAMESPACE();

#endif  // TP2_EXL3_LINEAR_INTEGER_INL_H_
