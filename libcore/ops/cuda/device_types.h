// Plain structs that kernels take: what the host's views become once the weights are on the device.
// Host and device code; no CUDA header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libcore/math/fp16.h"
#include "libcore/math/fp8.h"

namespace tp2::cuda {

// Rows of one product that share a pass over the weights, and rows of one tensor-core column group:
// the high and the low part of 4 rows fill the 8 columns of an instruction.
inline constexpr int kRowsPerPass = 24;
inline constexpr int kRowsPerGroup = 4;
// Rows of one job of a list: a second group adds a seventh to the instructions of the first, which
// are mostly the decoding of weights.
inline constexpr int kRowsPerJob = 2 * kRowsPerGroup;

constexpr int GroupsOf(int rows) { return (rows + kRowsPerGroup - 1) / kRowsPerGroup; }

// exl3::MatrixView in device memory, whole. The trellis of the mul1 codebook is repacked lane-major
// (trellis.cuh); the others lie as in the checkpoint.
struct DeviceMatrix {
  const uint16_t* trellis = nullptr;
  int64_t tile_row_pitch = 0;  // 16-bit units; without meaning when repacked
  const Fp16* suh = nullptr;
  const Fp16* svh = nullptr;
  int k = 0;
  int n = 0;
  int bits = 0;
  int codebook = 0;  // exl3::Codebook
};

inline constexpr int kCodebookInst = 0;
inline constexpr int kCodebookMcg = 1;
inline constexpr int kCodebookMul1 = 2;

// Half16View in device memory.
struct DeviceHalf16 {
  const uint16_t* bits = nullptr;
  bool is_fp16 = false;
  int rows = 1;
  int columns = 0;
};

// One product y = x W over up to kRowsPerPass rows. Item i reads row gather[i] (i without a gather)
// of x and writes row i of y; its prepared form lies at first_item + i and in group
// first_group + i / 4 of the workspace. No items: the job is skipped. Of gated jobs x is a gate:
// what is multiplied is SwiGLU(x, up) times the item's weight.
struct LinearJob {
  DeviceMatrix matrix;
  const float* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* gather = nullptr;
  const float* up = nullptr;       // gated: row stride x_stride
  const float* weights = nullptr;  // gated: [items]
  float* y = nullptr;
  int64_t y_stride = 0;
  int items = 0;
  int first_item = 0;
  int first_group = 0;
};

// Jobs in device memory, of at most kRowsPerJob items each and matrices of one k and n. Only the
// device knows how many there are.
struct JobList {
  const LinearJob* jobs = nullptr;
  const int* count = nullptr;
  int k = 0;
  int n = 0;
};

// Either `job_count` jobs by value, up to kFewJobs, or a list of `job_count` at most; all of
// the same k.
inline constexpr int kFewJobs = 8;
struct LinearJobs {
  LinearJob few[kFewJobs];
  JobList list;
  int job_count = 1;
  bool is_gated = false;
  int max_items = 0;  // of any job
  int max_outputs = 0;
  float swiglu_limit = 0;
};

inline int InputsOf(const LinearJobs& jobs) {
  return jobs.list.jobs != nullptr ? jobs.list.k : jobs.few[0].matrix.k;
}

// Rows between the input transform and the product.
struct LinearWorkspace {
  // Integer path: [group][k/64][32 lanes][4 k-tiles] words; the word of lane 4c + a of a k-tile
  // holds inputs 2a, 2a+1, 2a+8, 2a+9 of column c = 2 * (item % 4) + (low part).
  uint32_t* quanta = nullptr;
  float* halves = nullptr;      // fp16 path: [group][4][k]; jobs of both paths may share a launch
  int64_t* row_sums = nullptr;  // [item] sum of the row's quanta
  float* scales = nullptr;      // [item] factor after the output transform
  // Split products: sums [job][kRowsPerPass][max_outputs] and arrivals [job][max_outputs / 128]; of
  // a list, sums [item][n]. Zero between launches.
  unsigned long long* partial_sums = nullptr;
  unsigned int* arrivals = nullptr;
};

// First failure inside kernels; 0 means none (LatchError in warp.cuh).
enum class KernelError : int { kNone = 0, kRouterNan = 1, kMarkovNan = 2 };

// The matrices of one expert on one rank.
inline constexpr int kMaxHalves = 2;
struct DeviceExpert {
  DeviceMatrix w1, w3;
  DeviceMatrix w2[kMaxHalves];
};

}  // namespace tp2::cuda
