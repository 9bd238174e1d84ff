#include "libcore/exl3/matrix.h"

#include "libcore/base/check.h"

namespace tp2::exl3 {
namespace {

constexpr int kBlock = 128;  // a cut inside a Hadamard block would mix wrong neighbours

bool IsCut(int begin, int end, int limit) {
  return begin >= 0 && begin < end && end <= limit && begin % kBlock == 0 && end % kBlock == 0;
}

}  // namespace

const char* CodebookName(Codebook codebook) {
  switch (codebook) {
    case Codebook::k3Inst:
      return "3inst";
    case Codebook::kMcg:
      return "mcg";
    case Codebook::kMul1:
      return "mul1";
  }
  return "unknown";
}

MatrixView SliceOutputs(const MatrixView& matrix, int begin, int end) {
  TP2_CHECK(IsCut(begin, end, matrix.n));
  MatrixView slice = matrix;
  slice.n = end - begin;
  slice.trellis += static_cast<ptrdiff_t>(begin / kTile) * matrix.tile_units();
  slice.svh += begin;
  return slice;
}

MatrixView SliceInputs(const MatrixView& matrix, int begin, int end) {
  TP2_CHECK(IsCut(begin, end, matrix.k));
  MatrixView slice = matrix;
  slice.k = end - begin;
  slice.trellis += static_cast<ptrdiff_t>(begin / kTile) * matrix.tile_row_pitch;
  slice.suh += begin;
  return slice;
}

}  // namespace tp2::exl3
