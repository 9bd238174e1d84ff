// The vector kernels behind Linear and what passes between them. Internal to libcore/exl3.
//
// A row is prepared once per matrix (sign, scale, transform, quantization); then every block of 128
// outputs is an independent job that decodes its weights once for all rows.
#pragma once

#include <cstdint>

#include "libcore/exl3/linear.h"

namespace tp2::exl3 {

// Inputs per step of a job. A step's integer sums stay inside int32: 128 * 32258 * 510 < 2^31.
inline constexpr int kStep = 128;

// Activations of a step and row in the order in which a tile's states are stored: for each of the 8
// k-tiles four groups of 8 values {2a, 2a+1, 2a+8, 2a+9} twice, a = 0 .. 3.
inline constexpr int kStepActivations = 2 * kStep;

// Largest |v|, and the largest k for which T is exact in int64 and in every intermediate:
// 2^19 * 32258 * 452608 < 2^63.
inline constexpr int kMaxQuantum = 32258;
inline constexpr int kMaxInputs = 1 << 19;

// The rows of one matrix after the input transform. The kernels write the arrays; the caller owns
// them.
struct PreparedRows {
  // Integer path.
  int16_t* quanta = nullptr;  // [k/128, rows, kStepActivations]
  int64_t* sums = nullptr;    // [rows] sum of the row's quanta
  // fp16 path.
  float* halves = nullptr;  // [k/128, rows, 128] fp16 values held as fp32
  // Both paths: [rows] factor after the output transform; NaN makes the row NaN.
  float* scales = nullptr;
};

// Prepares one row. scratch: [k] fp32.
void PrepareRow(const LinearArgs& args, int row, const PreparedRows& prepared, float* scratch);

// Computes outputs [128 * block, 128 * block + 128) of every row. scratch: [rows, 128] int64; the
// contents before and after do not matter.
void ComputeBlock(const LinearArgs& args, const PreparedRows& prepared, int block,
                  int64_t* scratch);

// The instruction set in use, as Highway names it: "AVX2", "SCALAR", ...
const char* KernelTargetName();

}  // namespace tp2::exl3
