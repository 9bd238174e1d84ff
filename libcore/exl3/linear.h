// y = x W on the CPU. For mul1 matrices this is the definition of the product's bits; every other
// implementation must give the same ones. Vectorised with Highway; results do not depend on the
// vector width, the number of threads or the other rows.
//
// The exact integer path (mul1). For one row and the matrix's whole K range, every fp32 operation
// rounded once to nearest even, nothing fused:
//   r    = FWHT_128(x * suh), unnormalised, fp32, strides 1, 2, 4, ..., 64 (math/hadamard.h)
//   amax = max |r|
//   v_k  = rne(r_k * (32258 / amax)), |v_k| <= 32258 = 127 * 254; all 0 when amax < 2^-100
//   T_n  = sum_k v_k * (887 * b_kn - 452608), exact in int64, b the byte sum of
//          state * 0x83DCD12D: (887 b - 452608) * 2^-17 is the unrounded mul1 weight
//   y    = (FWHT_128(fp32(T)) * ((amax / 32258) * 2^-24)) * svh
//          2^-24 = 2^-17 from the weight, 2^-7 from both normalisations of the transforms
// v = 254 * hi + lo with |hi|, |lo| <= 127 is how an int8 tensor core carries it; the value is the
// same. A non-finite r makes the whole output row NaN (of no particular payload).
//
// 3INST and mcg matrices: a = fp16(r * fp32(1 / sqrt(128))), fp16 weights, fp32 sums in ascending k
// from 0, then (FWHT_128(sum) * fp32(1 / sqrt(128))) * svh; a non-finite a makes the row NaN.
// Deterministic and independent of other rows, but not the bits of a tensor core: results that used
// them are marked as not portable.
#pragma once

#include <cstdint>
#include <span>

#include "libcore/base/thread_pool.h"
#include "libcore/exl3/matrix.h"

namespace tp2::exl3 {

struct LinearArgs {
  MatrixView matrix;
  const float* x = nullptr;  // [rows, k] fp32, row stride x_stride
  int64_t x_stride = 0;      // elements; a row slice of a wider matrix is legal
  int rows = 0;              // any; each row's bits depend on that row alone
  float* y = nullptr;        // [rows, n] fp32, row stride y_stride; not aliased with x
  int64_t y_stride = 0;
};

// Requires (TP2_CHECK) k and n multiples of 128, k <= 2^19 so that T stays exact, 1 .. 8 bits, and
// strides of at least k and n. No rows: nothing happens.
void Linear(const LinearArgs& args, ThreadPool& pool);

// Several products at once, spread over all (matrix, 128 outputs) pairs, so that many small expert
// matrices keep every thread busy. Outputs must not overlap each other or any input; inputs may be
// shared. Each product has the bits of Linear.
void LinearBatch(std::span<const LinearArgs> batch, ThreadPool& pool);

// True when the matrix has the exact integer path, i.e. its products are one set of bits
// everywhere.
bool HasPortableBits(const MatrixView& matrix);

}  // namespace tp2::exl3
