#include "libcore/exl3/decode.h"

#include <array>
#include <cmath>
#include <memory>

#include "libcore/math/exl3_codebook.h"
#include "libcore/math/hadamard.h"

namespace tp2::exl3 {
namespace {

constexpr int kStates = 65536;

double Weight(Codebook codebook, uint16_t state, WeightForm form) {
  if (form == WeightForm::kExact && codebook == Codebook::kMul1) {
    return Exl3Mul1Numerator(state) * 0x1p-17;
  }
  return ToFloat(StateValue(codebook, state));
}

std::unique_ptr<float[]> BuildTable(Codebook codebook) {
  auto table = std::make_unique<float[]>(kStates);
  for (int state = 0; state < kStates; ++state) {
    table[state] = ToFloat(StateValue(codebook, static_cast<uint16_t>(state)));
  }
  return table;
}

// H / sqrt(128) in fp64 on 128 values that are `stride` apart.
void Transform(double* values, ptrdiff_t stride) {
  for (int step = 1; step < kHadamardPoints; step *= 2) {
    for (int i = 0; i < kHadamardPoints; ++i) {
      if ((i & step) != 0) continue;
      double& low = values[i * stride];
      double& high = values[(i + step) * stride];
      const double a = low;
      const double b = high;
      low = a + b;
      high = a - b;
    }
  }
  for (int i = 0; i < kHadamardPoints; ++i) values[i * stride] /= std::sqrt(128.0);
}

}  // namespace

void TileStates(const uint16_t* units, int bits, uint16_t* states) {
  // Bit 0 of the string is the most significant bit of 32-bit word 0; a word is stored low unit
  // first.
  const int words = 8 * bits;
  const auto word = [units](int i) {
    return units[2 * i] | (static_cast<uint32_t>(units[2 * i + 1]) << 16);
  };
  for (int p = 0; p < kTileWeights; ++p) {
    const int end = (p + 1) * bits;  // the state is the 16 bits that end here, modulo the ring
    const int last = (end - 1) / 32;
    const uint64_t window =
        (static_cast<uint64_t>(word((last + words - 1) % words)) << 32) | word(last);
    states[p] = static_cast<uint16_t>(window >> (32 * (last + 1) - end));
  }
}

Fp16 StateValue(Codebook codebook, uint16_t state) {
  switch (codebook) {
    case Codebook::k3Inst:
      return Exl3InstValue(state);
    case Codebook::kMcg:
      return Exl3McgValue(state);
    case Codebook::kMul1:
      break;
  }
  return Exl3Mul1Value(state);
}

const float* ValueTable(Codebook codebook) {
  static const std::unique_ptr<float[]> inst = BuildTable(Codebook::k3Inst);
  static const std::unique_ptr<float[]> mcg = BuildTable(Codebook::kMcg);
  static const std::unique_ptr<float[]> mul1 = BuildTable(Codebook::kMul1);
  if (codebook == Codebook::k3Inst) return inst.get();
  return codebook == Codebook::kMcg ? mcg.get() : mul1.get();
}

void DecodeTile(const uint16_t* units, int bits, Codebook codebook, Fp16* values) {
  std::array<uint16_t, kTileWeights> states = {};
  TileStates(units, bits, states.data());
  for (int p = 0; p < kTileWeights; ++p) {
    values[TileRow(p) * kTile + TileColumn(p)] = StateValue(codebook, states[p]);
  }
}

void HadamardBothSides(int k, int n, double* values) {
  for (ptrdiff_t row = 0; row < k; ++row) {
    for (int block = 0; block < n; block += kHadamardPoints) Transform(values + row * n + block, 1);
  }
  for (ptrdiff_t block = 0; block < k; block += kHadamardPoints) {
    for (int column = 0; column < n; ++column) Transform(values + block * n + column, n);
  }
}

std::vector<double> DecodeGrid(const MatrixView& matrix, WeightForm form) {
  std::vector<double> grid(static_cast<size_t>(matrix.k) * matrix.n);
  std::array<uint16_t, kTileWeights> states = {};
  for (int i = 0; i < matrix.k / kTile; ++i) {
    for (int j = 0; j < matrix.n / kTile; ++j) {
      TileStates(matrix.trellis + i * matrix.tile_row_pitch + j * matrix.tile_units(), matrix.bits,
                 states.data());
      double* corner = grid.data() + static_cast<size_t>(i) * kTile * matrix.n + j * kTile;
      for (int p = 0; p < kTileWeights; ++p) {
        corner[static_cast<size_t>(TileRow(p)) * matrix.n + TileColumn(p)] =
            Weight(matrix.codebook, states[p], form);
      }
    }
  }
  return grid;
}

std::vector<double> DenseWeights(const MatrixView& matrix, WeightForm form) {
  std::vector<double> dense = DecodeGrid(matrix, form);
  const ptrdiff_t n = matrix.n;
  HadamardBothSides(matrix.k, matrix.n, dense.data());
  for (ptrdiff_t row = 0; row < matrix.k; ++row) {
    const double suh = ToFloat(matrix.suh[row]);
    for (ptrdiff_t column = 0; column < n; ++column) {
      dense[row * n + column] *= suh * ToFloat(matrix.svh[column]);
    }
  }
  return dense;
}

}  // namespace tp2::exl3
