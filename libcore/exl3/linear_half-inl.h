// The fp16 path of the 3INST and mcg codebooks (linear.h): decoded by table, summed in fp32 in
// ascending k. Included once per instruction set.

#if defined(TP2_EXL3_LINEAR_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TP2_EXL3_LINEAR_HALF_INL_H_
#undef TP2_EXL3_LINEAR_HALF_INL_H_
#else
#define TP2_EXL3_LINEAR_HALF_INL_H_
#endif

#include <cmath>
#include <limits>

#include "libcore/exl3/tile_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tp2::exl3 {
namespace HWY_NAMESPACE {

void PrepareHalfRow(const LinearArgs& args, int row, const PreparedRows& prepared,
                    float* HWY_RESTRICT r) {
  TransformRow(args, row, r);
  bool is_finite = true;
  for (int begin = 0; begin < args.matrix.k; begin += kStep) {
    float* to = prepared.halves + (static_cast<int64_t>(begin / kStep) * args.rows + row) * kStep;
    for (int i = 0; i < kStep; ++i) {
      to[i] = ToFloat(ToFp16(r[begin + i] * kHadamardNorm));
      is_finite = is_finite && std::isfinite(to[i]);
    }
  }
  prepared.scales[row] = is_finite ? kHadamardNorm : std::numeric_limits<float>::quiet_NaN();
}

// Adds one k-tile and 16 outputs to the sums of every row. w: [16, 16] row-major; a: row stride
// 128; sums: row stride 128. Products of two halves are exact in fp32, so fusing could not matter.
HWY_INLINE void AddTile(const float* HWY_RESTRICT w, const float* HWY_RESTRICT a, int rows,
                        float* HWY_RESTRICT sums) {
  const hn::CappedTag<float, kTile> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < kTile; column += lanes) {
      auto sum = hn::LoadU(d, sums + row * kStep + column);
      for (int k = 0; k < kTile; ++k) {
        const auto value = hn::Set(d, a[row * kStep + k]);
        sum = hn::Add(sum, hn::Mul(value, hn::Load(d, w + k * kTile + column)));
      }
      hn::StoreU(sum, d, sums + row * kStep + column);
    }
  }
}

void ComputeHalfBlock(const LinearArgs& args, const PreparedRows& prepared, int block,
                      int64_t* HWY_RESTRICT scratch) {
  const MatrixView& matrix = args.matrix;
  const GroupPattern pattern = MakeGroupPattern(matrix.bits);
  TileStream stream;
  const float* table = ValueTable(matrix.codebook);
  float* sums = reinterpret_cast<float*>(scratch);
  std::fill_n(sums, static_cast<int64_t>(args.rows) * kStep, 0.0f);
  for (int i = 0; i < matrix.k / kTile; ++i) {
    const uint16_t* units = matrix.trellis + i * matrix.tile_row_pitch +
                            static_cast<ptrdiff_t>(block) * (kStep / kTile) * matrix.tile_units();
    const float* a = prepared.halves +
                     static_cast<int64_t>(i / (kStep / kTile)) * args.rows * kStep +
                     i % (kStep / kTile) * kTile;
    for (int j = 0; j < kStep / kTile; ++j, units += matrix.tile_units()) {
      LoadStream(units, matrix.bits, stream);
      HWY_ALIGN uint16_t states[kTileWeights];
      StreamStates(stream, pattern, states);
      HWY_ALIGN float w[kTileWeights];
      for (int p = 0; p < kTileWeights; ++p) {
        w[TileRow(p) * kTile + TileColumn(p)] = table[states[p]];
      }
      AddTile(w, a, args.rows, sums + j * kTile);
    }
  }
  for (int row = 0; row < args.rows; ++row) {
    StoreBlock(args, row, block * kStep, prepared.scales[row], sums + row * kStep);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tp2::exl3
HWY_AFTER_NAMESPACE();

#endif  // TP2_EXL3_LINEAR_HALF_INL_H_
