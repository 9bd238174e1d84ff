#include "libcore/ops/cpu/canonical_matvec.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "libcore/base/check.h"
#include "libcore/math/bf16.h"
#include "libcore/math/fp16.h"
#include "libcore/math/fp8.h"
#include "libcore/math/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libcore/ops/cpu/canonical_matvec.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "libcore/ops/cpu/fused_mul_add-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tp2 {
namespace HWY_NAMESPACE {

using BitsTag = hn::RebindToUnsigned<FloatTag>;
using BitsVec = hn::Vec<BitsTag>;

// How one form's weights become fp32. V: the canonical width. At(k): weight k of the row. Load:
// weights k .. k + V * Lanes - 1, out[v] holding element v of every lane.
struct F32Row {
  static constexpr int kV = 4;
  const float* w;
  float At(int k) const { return w[k]; }
  void Load(int k, FloatVec (&out)[kV]) const {
    hn::LoadInterleaved4(FloatTag(), w + k, out[0], out[1], out[2], out[3]);
  }
};

struct Bf16Row {
  static constexpr int kV = 8;
  const Bf16* w;
  float At(int k) const { return ToFloat(w[k]); }
  void Load(int k, FloatVec (&out)[kV]) const {
    const FloatTag d;
    const BitsTag d_bits;
    BitsVec pair[4];
    hn::LoadInterleaved4(d_bits, reinterpret_cast<const uint32_t*>(w + k), pair[0], pair[1],
                         pair[2], pair[3]);
    const auto odd = hn::Set(d_bits, 0xFFFF0000u);
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = hn::BitCast(d, hn::ShiftLeft<16>(pair[i]));
      out[2 * i + 1] = hn::BitCast(d, hn::And(pair[i], odd));
    }
  }
};

struct Fp8Row {
  static constexpr int kV = 16;
  const Fp8E4m3* w;
  const float* scale;  // of the row's blocks
  int block;           // a multiple of kV
  const float* table;  // [256]
  float At(int k) const { return table[w[k].bits] * scale[k / block]; }
  void Load(int k, FloatVec (&out)[kV]) const {
    const FloatTag d;
    const BitsTag d_bits;
    const hn::RebindToSigned<FloatTag> d_index;
    constexpr int kLanes = static_cast<int>(hn::MaxLanes(FloatTag()));
    HWY_ALIGN float lane_scales[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) lane_scales[lane] = scale[(k + lane * kV) / block];
    const FloatVec scales = hn::Load(d, lane_scales);
    const auto low_byte = hn::Set(d_bits, 0xFFu);
    BitsVec quad[4];
    hn::LoadInterleaved4(d_bits, reinterpret_cast<const uint32_t*>(w + k), quad[0], quad[1],
                         quad[2], quad[3]);
    for (int i = 0; i < kV; ++i) {
      const auto byte = hn::And(hn::ShiftRightSame(quad[i / 4], i % 4 * 8), low_byte);
      out[i] = hn::Mul(hn::GatherIndex(d, table, hn::BitCast(d_index, byte)), scales);
    }
  }
};

struct F32WideRow {
  static constexpr int kV = 8;
  const float* w;
  float At(int k) const { return w[k]; }
  void Load(int k, FloatVec (&out)[kV]) const {
#if HWY_TARGET == HWY_SCALAR
    for (int v = 0; v < kV; ++v) out[v] = hn::Set(FloatTag(), w[k + v]);
#else
    const FloatTag d;
    FloatVec low[4], high[4];  // of the lower and the upper half of the lanes
    hn::LoadInterleaved4(d, w + k, low[0], low[1], low[2], low[3]);
    hn::LoadInterleaved4(d, w + k + 4 * hn::Lanes(d), high[0], high[1], high[2], high[3]);
    for (int i = 0; i < 4; ++i) {
      out[i] = hn::ConcatEven(d, high[i], low[i]);
      out[4 + i] = hn::ConcatOdd(d, high[i], low[i]);
    }
#endif
  }
};

// Element by element: only some public packs have fp16 rows.
struct Fp16Row {
  static constexpr int kV = 8;
  const Fp16* w;
  float At(int k) const { return ToFloat(w[k]); }
  void Load(int k, FloatVec (&out)[kV]) const {
    const FloatTag d;
    constexpr int kLanes = static_cast<int>(hn::MaxLanes(FloatTag()));
    HWY_ALIGN float values[kLanes];
    for (int v = 0; v < kV; ++v) {
      for (int lane = 0; lane < kLanes; ++lane) values[lane] = At(k + lane * kV + v);
      out[v] = hn::Load(d, values);
    }
  }
};

// Decoded weights of the sweep that starts at weight k, transposed: tile[v * 32 + lane] =
// w[k + lane * V + v], for the valid lanes and zeros up to a whole vector.
template <class Row>
HWY_INLINE void DecodeSweep(const Row& weights, int k, int valid_lanes, float* HWY_RESTRICT tile) {
  const FloatTag d;
  const int step = static_cast<int>(hn::Lanes(d));
  int lane = 0;
  for (; lane + step <= valid_lanes; lane += step) {
    FloatVec v[Row::kV];
    weights.Load(k + lane * Row::kV, v);
    for (int i = 0; i < Row::kV; ++i) hn::Store(v[i], d, tile + i * kReduceLanes + lane);
  }
  const int end = (valid_lanes + step - 1) / step * step;
  for (; lane < end; ++lane) {
    for (int i = 0; i < Row::kV; ++i) {
      tile[i * kReduceLanes + lane] =
          lane < valid_lanes ? weights.At(k + lane * Row::kV + i) : 0.0f;
    }
  }
}

// lanes[l] = fma over v of tile[v][l] * x[v][l], for the first valid_lanes lanes; the others keep
// their value.
template <int V>
HWY_INLINE void AccumulateSweep(const float* HWY_RESTRICT tile, const float* HWY_RESTRICT x,
                                int valid_lanes, float* HWY_RESTRICT lanes) {
  const FloatTag d;
  const int step = static_cast<int>(hn::Lanes(d));
  for (int lane = 0; lane < valid_lanes; lane += step) {
    const FloatVec before = hn::Load(d, lanes + lane);
    FloatVec sum = before;
    for (int v = 0; v < V; ++v) {
      const int at = v * kReduceLanes + lane;
      sum = FusedMulAdd(d, hn::Load(d, tile + at), hn::Load(d, x + at), sum);
    }
    if (valid_lanes - lane < step) {
      const auto keep = hn::FirstN(d, static_cast<size_t>(valid_lanes - lane));
      sum = hn::IfThenElse(keep, sum, before);
    }
    hn::Store(sum, d, lanes + lane);
  }
}

// ButterflySum of the lanes; destroys them.
HWY_INLINE float MeetLanes(float* HWY_RESTRICT lanes) {
  const FloatTag d;
  const int step = static_cast<int>(hn::Lanes(d));
  int distance = kReduceLanes / 2;
  for (; distance >= step; distance /= 2) {
    for (int lane = 0; lane < distance; lane += step) {
      const FloatVec near = hn::Load(d, lanes + lane);
      hn::Store(hn::Add(near, hn::LoadU(d, lanes + lane + distance)), d, lanes + lane);
    }
  }
  for (; distance > 0; distance /= 2) {
    for (int lane = 0; lane < distance; ++lane) lanes[lane] = lanes[lane] + lanes[lane + distance];
  }
  return lanes[0];
}

// All x rows against weight row `row`.
template <class Row>
HWY_INLINE void OneRow(const CanonicalMatVecArgs& args, const float* packed_x, int row,
                       const Row& weights) {
  constexpr int kSweep = kReduceLanes * Row::kV;
  const int sweeps = (args.columns + kSweep - 1) / kSweep;
  HWY_ALIGN float tile[kSweep];
  constexpr int kRowBlock = 16;
  for (int x_begin = 0; x_begin < args.x_rows; x_begin += kRowBlock) {
    const int x_end = std::min(args.x_rows, x_begin + kRowBlock);
    HWY_ALIGN float lanes[kRowBlock][kReduceLanes];
    float totals[kRowBlock];
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      const bool starts_segment = sweep % kSweepsPerSegment == 0;
      const int base = sweep * kSweep;
      const int valid_lanes = std::min(kReduceLanes, (args.columns - base) / Row::kV);
      DecodeSweep(weights, base, valid_lanes, tile);
      const bool ends_segment = sweep + 1 == sweeps || (sweep + 1) % kSweepsPerSegment == 0;
      for (int x_row = x_begin; x_row < x_end; ++x_row) {
        float* sum = lanes[x_row - x_begin];
        if (starts_segment) std::fill_n(sum, kReduceLanes, 0.0f);
        AccumulateSweep<Row::kV>(tile,
                                 packed_x + (static_cast<int64_t>(x_row) * sweeps + sweep) * kSweep,
                                 valid_lanes, sum);
        if (!ends_segment) continue;
        float& total = totals[x_row - x_begin];
        const float segment = MeetLanes(sum);
        total = sweep < kSweepsPerSegment ? segment : total + segment;
      }
    }
    for (int x_row = x_begin; x_row < x_end; ++x_row) {
      args.y[x_row * args.y_stride + row] = totals[x_row - x_begin];
    }
  }
}

void MatVecRows(const CanonicalMatVecArgs& args, const float* packed_x, const float* fp8_table,
                int row_begin, int row_end) {
  for (int row = row_begin; row < row_end; ++row) {
    const int64_t at = static_cast<int64_t>(row) * args.columns;
    switch (args.form) {
      case RowForm::kF32:
        OneRow(args, packed_x, row, F32Row{static_cast<const float*>(args.weights) + at});
        break;
      case RowForm::kF32Wide:
        OneRow(args, packed_x, row, F32WideRow{static_cast<const float*>(args.weights) + at});
        break;
      case RowForm::kBf16:
        OneRow(args, packed_x, row, Bf16Row{static_cast<const Bf16*>(args.weights) + at});
        break;
      case RowForm::kFp16:
        OneRow(args, packed_x, row, Fp16Row{static_cast<const Fp16*>(args.weights) + at});
        break;
      case RowForm::kFp8: {
        const int64_t blocks = args.columns / args.fp8_block;
        OneRow(args, packed_x, row,
               Fp8Row{.w = static_cast<const Fp8E4m3*>(args.weights) + at,
                      .scale = args.fp8_scale + row / args.fp8_block * blocks,
                      .block = args.fp8_block,
                      .table = fp8_table});
        break;
      }
    }
  }
}

float SumOfSquaresVector(const float* x, int columns) {
  constexpr int kSweep = kReduceLanes * F32Row::kV;
  HWY_ALIGN float tile[kSweep];
  HWY_ALIGN float lanes[kReduceLanes];
  float total = 0.0f;
  for (int base = 0; base < columns; base += kSweep) {
    if (base % (kSweep * kSweepsPerSegment) == 0) std::fill_n(lanes, kReduceLanes, 0.0f);
    const int valid_lanes = std::min(kReduceLanes, (columns - base) / F32Row::kV);
    DecodeSweep(F32Row{x}, base, valid_lanes, tile);
    AccumulateSweep<F32Row::kV>(tile, tile, valid_lanes, lanes);
    const int next = base + kSweep;
    if (next < columns && next % (kSweep * kSweepsPerSegment) != 0) continue;
    const float segment = MeetLanes(lanes);
    total = base < kSweep * kSweepsPerSegment ? segment : total + segment;
  }
  return total;
}

void WeightedSumVector(const WeightedSumArgs& args) {
  const FloatTag d;
  const int step = static_cast<int>(hn::Lanes(d));
  int column = 0;
  for (; column + step <= args.columns; column += step) {
    FloatVec sum = hn::Zero(d);
    for (int j = 0; j < args.row_count; ++j) {
      const FloatVec row =
          hn::LoadU(d, args.rows + static_cast<int64_t>(j) * args.columns + column);
      sum = FusedMulAdd(d, hn::Set(d, args.weights[j]), row, sum);
    }
    hn::StoreU(sum, d, args.out + column);
  }
  for (; column < args.columns; ++column) {
    float sum = 0.0f;
    for (int j = 0; j < args.row_count; ++j) {
      sum = std::fma(args.weights[j], args.rows[static_cast<int64_t>(j) * args.columns + column],
                     sum);
    }
    args.out[column] = sum;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tp2
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tp2 {
namespace {

HWY_EXPORT(MatVecRows);
HWY_EXPORT(WeightedSumVector);
HWY_EXPORT(SumOfSquaresVector);

int WidthOf(RowForm form) {
  switch (form) {
    case RowForm::kF32:
      return 4;
    case RowForm::kFp8:
      return 16;
    default:
      return 8;
  }
}

// x in the order in which the kernel reads it: [x_rows][sweep][v][lane], zero past the end.
hwy::AlignedFreeUniquePtr<float[]> PackX(const CanonicalMatVecArgs& args) {
  const int v_count = WidthOf(args.form);
  const int sweep_values = kReduceLanes * v_count;
  const int sweeps = (args.columns + sweep_values - 1) / sweep_values;
  auto packed =
      hwy::AllocateAligned<float>(static_cast<size_t>(args.x_rows) * sweeps * sweep_values);
  TP2_CHECK(packed != nullptr);
  float* out = packed.get();
  for (int row = 0; row < args.x_rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    for (int base = 0; base < sweeps * sweep_values; base += sweep_values) {
      for (int v = 0; v < v_count; ++v) {
        for (int lane = 0; lane < kReduceLanes; ++lane) {
          const int k = base + lane * v_count + v;
          *out++ = k < args.columns ? x[k] : 0.0f;
        }
      }
    }
  }
  return packed;
}

}  // namespace

void CanonicalMatVec(const CanonicalMatVecArgs& args, ThreadPool& pool) {
  TP2_CHECK(args.columns % WidthOf(args.form) == 0);
  const auto packed_x = PackX(args);
  float fp8_table[256];
  for (int byte = 0; byte < 256; ++byte) {
    fp8_table[byte] = ToFloat(Fp8E4m3{static_cast<uint8_t>(byte)});
  }
  constexpr int kRowChunk = 16;
  const int chunks = (args.weight_rows + kRowChunk - 1) / kRowChunk;
  const auto kernel = HWY_DYNAMIC_DISPATCH(MatVecRows);
  pool.ParallelFor(chunks, [&](int64_t chunk) {
    const int begin = static_cast<int>(chunk) * kRowChunk;
    kernel(args, packed_x.get(), fp8_table, begin, std::min(args.weight_rows, begin + kRowChunk));
  });
}

float SumOfSquares(const float* x, int columns) {
  TP2_CHECK(columns % WidthOf(RowForm::kF32) == 0);
  return HWY_DYNAMIC_DISPATCH(SumOfSquaresVector)(x, columns);
}

void WeightedSum(const WeightedSumArgs& args) { HWY_DYNAMIC_DISPATCH(WeightedSumVector)(args); }

}  // namespace tp2
#endif  // HWY_ONCE
