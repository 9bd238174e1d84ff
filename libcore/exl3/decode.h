// The reference decoder: trellis units to states, states to weights, whole matrices to dense
// float64. Written for clarity; the product's kernels are tested against it. Source of the format:
// research note exl3, section 2.
#pragma once

#include <cstdint>
#include <vector>

#include "libcore/exl3/matrix.h"

namespace tp2::exl3 {

// Place of position p (0 .. 255) inside its tile, in tensor-core order.
constexpr int TileRow(int p) { return 2 * ((p / 8) % 4) + (p & 1) + 8 * ((p >> 1) & 1); }
constexpr int TileColumn(int p) { return p / 32 + 8 * ((p >> 2) & 1); }

// states: [256] in position order, out. units: 16 * bits units of one tile; every bit pattern is
// valid.
void TileStates(const uint16_t* units, int bits, uint16_t* states);

// The value of a state as the format's kernels see it, rounded to fp16.
Fp16 StateValue(Codebook codebook, uint16_t state);

// All 65536 values of a codebook in state order, as fp32. Built at the first call; thread-safe.
const float* ValueTable(Codebook codebook);

// The weights of one tile, row-major 16 x 16.
void DecodeTile(const uint16_t* units, int bits, Codebook codebook, Fp16* values);

enum class WeightForm : uint8_t {
  kFp16,   // rounded to fp16, as the format's kernels multiply
  kExact,  // mul1 unrounded, as the exact integer path multiplies; other codebooks as kFp16
};

// Hb M Hb in place, M [k, n] row-major, Hb = H / sqrt(128) on every 128-block. Its own inverse.
void HadamardBothSides(int k, int n, double* values);

// The tile grid What, [k, n] row-major.
std::vector<double> DecodeGrid(const MatrixView& matrix, WeightForm form);

// W = diag(suh) Hb What Hb diag(svh), [k, n] row-major, with H / sqrt(128) on every 128-block:
// y = x W. 8 * k * n bytes: meant for tests and inspection.
std::vector<double> DenseWeights(const MatrixView& matrix, WeightForm form);

}  // namespace tp2::exl3
