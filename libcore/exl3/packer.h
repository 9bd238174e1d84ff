// Packs given weights into tiles by beam search: for tests and synthetic checkpoints that need
// planted weights. It does no calibration and is far from the format's real quantizer in quality
// per bit; 5 bits and more give usable copies of a matrix.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libcore/base/thread_pool.h"
#include "libcore/exl3/matrix.h"

namespace tp2::exl3 {

struct PackOptions {
  int bits = 5;  // 1 .. 8
  Codebook codebook = Codebook::kMul1;
  int beam_width = 16;  // survivors per position; time grows in proportion
};

// Inverse of TileStates for states that form a ring: writes the low `bits` bits of each of the 256
// states, in position order. units: 16 * bits, out.
void PackStates(const uint16_t* states, int bits, uint16_t* units);

// Packs one tile. targets: [16, 16] row-major, in units of the codebook, whose values have a
// standard deviation of 1.00 (mul1) or 1.24 (3INST, mcg). units: 16 * bits, out.
void PackTile(const float* targets, const PackOptions& options, uint16_t* units);

// A packed matrix that owns its parts.
struct PackedMatrix {
  int k = 0;
  int n = 0;
  PackOptions options;
  std::vector<uint16_t> trellis;
  std::vector<Fp16> suh, svh;

  // Valid while the matrix lives and is not moved from.
  MatrixView view() const;
};

struct Scales {
  std::vector<Fp16> suh, svh;
};

// Scales that bring the tiles of `dense` to the codebook's range: svh = random signs, suh = random
// signs times the row's RMS over the codebook's deviation. dense: [k, n] row-major.
Scales ChooseScales(int k, int n, std::span<const double> dense, Codebook codebook, uint64_t seed);

// Packs dense [k, n] row-major, y = x W; k and n multiples of 128 (checked by TP2_CHECK). A zero
// scale leaves its row or column of W zero, whatever the tiles hold. The result does not depend on
// the number of threads.
PackedMatrix PackMatrix(int k, int n, std::span<const double> dense, Scales scales,
                        const PackOptions& options, ThreadPool& pool);

}  // namespace tp2::exl3
