// One EXL3-quantized matrix as a view: y = x W with W = diag(suh) Hb What Hb diag(svh), What a grid
// of 16x16 tiles. Source of the format: research note exl3, sections 1 and 2. A view owns nothing;
// a slice is another view.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "libcore/math/fp16.h"

namespace tp2::exl3 {

inline constexpr int kTile = 16;          // rows and columns of a tile
inline constexpr int kTileWeights = 256;  // weights of a tile
inline constexpr int kMaxBits = 8;

enum class Codebook : uint8_t { k3Inst, kMcg, kMul1 };

const char* CodebookName(Codebook codebook);  // "3inst", "mcg", "mul1"

struct MatrixView {
  int k = 0;     // inputs, a multiple of 128
  int n = 0;     // outputs, a multiple of 128
  int bits = 0;  // 1 .. 8 bits per weight
  Codebook codebook = Codebook::kMul1;
  // [k/16, n/16, 16*bits] 16-bit units; consecutive k-tiles are `tile_row_pitch` units apart (n/16
  // * 16*bits for a whole matrix, more for a column slice). 2-byte aligned.
  const uint16_t* trellis = nullptr;
  ptrdiff_t tile_row_pitch = 0;
  const Fp16* suh = nullptr;  // [k] input scales and signs
  const Fp16* svh = nullptr;  // [n] output scales and signs; 0 is legal (a dead output)

  int tile_units() const { return kTile * bits; }
  // Bytes of the stored form: trellis, suh and svh.
  size_t stored_bytes() const {
    return static_cast<size_t>(k) * n / 8 * bits + 2 * (static_cast<size_t>(k) + n);
  }
};

// Outputs [begin, end): multiples of 128 inside the matrix (checked by TP2_CHECK). decode(slice) ==
// slice(decode).
MatrixView SliceOutputs(const MatrixView& matrix, int begin, int end);

// Inputs [begin, end): multiples of 128 inside the matrix.
MatrixView SliceInputs(const MatrixView& matrix, int begin, int end);

}  // namespace tp2::exl3
