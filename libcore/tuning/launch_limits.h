// What the kernels allow a table to choose, and what is chosen without one. Integer sums have one
// value however they are split, so nothing here can change a bit.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tp2::tuning {

// Version of the keys, the knobs and their limits: a table of another one was made for kernels that
// this build does not have.
inline constexpr int kLaunchVersion = 1;

// Products. A pass over the weights takes up to kMaxPassRows rows; kernels differ by groups of
// kRowsPerBucket.
inline constexpr int kRowsPerBucket = 4;
inline constexpr int kMaxPassRows = 24;
inline constexpr int kBlockOutputs = 128;
inline constexpr int kMinPartInputs = 256;
// int32 sums: 127 * 1005 * 16384 < 2^31.
inline constexpr int kMaxPartInputs = 16384;
// Jobs times outputs whose partial sums the workspace holds.
inline constexpr int kMaxSplitOutputs = 64 * 1024;

constexpr int RowBucketOf(int rows) {
  return (rows + kRowsPerBucket - 1) / kRowsPerBucket * kRowsPerBucket;
}

constexpr int LeastSplits(int k) { return (k + kMaxPartInputs - 1) / kMaxPartInputs; }

constexpr int MostSplits(int k) { return std::max({1, LeastSplits(k), k / kMinPartInputs}); }

constexpr bool HasRoomForSums(int64_t job_count, int64_t max_outputs) {
  return job_count * max_outputs <= kMaxSplitOutputs;
}

// The choice without a table: as many blocks as the card holds at two per multiprocessor, never a
// few more: those would take as long again. Parts of at least two 128-blocks.
constexpr int SafeSplits(int k, int block_count, int multiprocessors) {
  return std::max(
      {1, LeastSplits(k), std::min(2 * multiprocessors / block_count, k / kMinPartInputs)});
}

// All-reduces: blocks of one operation, and threads of a block. Blocks are all resident at once;
// `resident_blocks` is how many of kMaxReduceThreads are, and blocks of fewer threads are at least
// as many.
inline constexpr int kMaxReduceBlocks = 160;
inline constexpr int kMaxReduceThreads = 1024;
// Measured on one H200 and on two: 128 threads beat 64 and 256 at 5 rows, one item per thread beats
// two everywhere.
inline constexpr int kSafeReduceThreads = 128;

struct ReduceShape {
  int blocks = 1;
  int threads = kSafeReduceThreads;
};

constexpr int MostReduceBlocks(int resident_blocks, int threads) {
  return std::min(kMaxReduceBlocks, resident_blocks * (kMaxReduceThreads / threads));
}

// The choice without a table: one item per thread while they fit. With several items a thread, a
// second block on a few multiprocessors makes all wait for those: 12.3 us instead of 12.0 at 2 MB.
constexpr ReduceShape SafeReduceShape(int64_t items, int resident_blocks, int multiprocessors) {
  ReduceShape shape;
  while (shape.threads < kMaxReduceThreads &&
         items > int64_t{shape.threads} * MostReduceBlocks(resident_blocks, shape.threads)) {
    shape.threads *= 2;
  }
  const int most = MostReduceBlocks(resident_blocks, shape.threads);
  const int64_t blocks = (items + shape.threads - 1) / shape.threads;
  shape.blocks = static_cast<int>(
      std::clamp<int64_t>(blocks, 1, blocks > most ? std::min(most, multiprocessors) : most));
  return shape;
}

}  // namespace tp2::tuning
