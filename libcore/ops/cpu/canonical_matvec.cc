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

HWY_BEFORE_NAMESPACE();
namespace tp2 {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

// BITS: one rounding on every target; targets without the instruction go through the C library's
// exact fmaf.
HWY_INLINE FloatVec FusedMulAdd(FloatTag d, FloatVec a, FloatVec b, FloatVec c) {
#if HWY_NATIVE_FMA
  (void)d;
  return hn::MulAdd(a, b, c);
#else
  HWY_ALIGN float as[HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float bs[HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float cs[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(a, d, as);
  hn::Store(b, d, bs);
  hn::Store(c, d, cs);
  for (size_t i = 0; i < hn::Lanes(d); ++i) cs[i] = std::fma(as[i], bs[i], cs[i]);
  return hn::Load(d, cs);
#endif
}

// Decoded weights of one sweep, transposed: tile[v * 32 + lane] = w[lane * V + v]; lanes past the
// end are zero.
template <int V, class Decode>
HWY_INLINE void DecodeSweep(int valid_lanes, const Decode& decode, float* HWY_RESTRICT tile) {
  for (int lane = 0; lane < valid_lanes; ++lane) {
    for (int v = 0; v < V; ++v) tile[v * kReduceLanes + lane] = decode(lane * V + v);
  }
  for (int lane = valid_lanes; lane < kReduceLanes; ++lane) {
    for (int v = 0; v < V; ++v) tile[v * kReduceLanes + lane] = 0.0f;
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
    const auto keep = hn::FirstN(d, static_cast<size_t>(std::min(step, valid_lanes - lane)));
    hn::Store(hn::IfThenElse(keep, sum, before), d, lanes + lane);
  }
}

// All x rows against weight row `row`; decode_at(k) gives the decoded weight k of that row.
template <int V, class DecodeAt>
HWY_INLINE void OneRow(const CanonicalMatVecArgs& args, const float* packed_x, int row,
                       const DecodeAt& decode_at) {
  constexpr int kSweep = kReduceLanes * V;
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
      const int valid_lanes = std::min(kReduceLanes, (args.columns - base) / V);
      DecodeSweep<V>(
          valid_lanes, [&](int k) { return decode_at(base + k); }, tile);
      const bool ends_segment = sweep + 1 == sweeps || (sweep + 1) % kSweepsPerSegment == 0;
      for (int x_row = x_begin; x_row < x_end; ++x_row) {
        float* sum = lanes[x_row - x_begin];
        if (starts_segment) std::fill_n(sum, kReduceLanes, 0.0f);
        AccumulateSweep<V>(tile, packed_x + (static_cast<int64_t>(x_row) * sweeps + sweep) * kSweep,
                           valid_lanes, sum);
        if (!ends_segment) continue;
        float& total = totals[x_row - x_begin];
        const float segment = ButterflySum(sum);
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
      case RowForm::kF32: {
        const float* w = static_cast<const float*>(args.weights) + at;
        OneRow<4>(args, packed_x, row, [w](int k) { return w[k]; });
        break;
      }
      case RowForm::kF32Wide: {
        const float* w = static_cast<const float*>(args.weights) + at;
        OneRow<8>(args, packed_x, row, [w](int k) { return w[k]; });
        break;
      }
      case RowForm::kBf16: {
        const Bf16* w = static_cast<const Bf16*>(args.weights) + at;
        OneRow<8>(args, packed_x, row, [w](int k) { return ToFloat(w[k]); });
        break;
      }
      case RowForm::kFp16: {
        const Fp16* w = static_cast<const Fp16*>(args.weights) + at;
        OneRow<8>(args, packed_x, row, [w](int k) { return ToFloat(w[k]); });
        break;
      }
      case RowForm::kFp8: {
        const Fp8E4m3* w = static_cast<const Fp8E4m3*>(args.weights) + at;
        const float* scale = args.fp8_scale + static_cast<int64_t>(row / args.fp8_block) *
                                                  (args.columns / args.fp8_block);
        const int block = args.fp8_block;
        OneRow<16>(args, packed_x, row, [w, scale, block, fp8_table](int k) {
          return fp8_table[w[k].bits] * scale[k / block];
        });
        break;
      }
    }
  }
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

void WeightedSum(const WeightedSumArgs& args) { HWY_DYNAMIC_DISPATCH(WeightedSumVector)(args); }

}  // namespace tp2
#endif  // HWY_ONCE
