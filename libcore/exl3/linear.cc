#include "libcore/exl3/linear.h"

#include <algorithm>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "libcore/base/check.h"
#include "libcore/exl3/linear_kernels.h"

namespace tp2::exl3 {
namespace {

// Owns the arrays of one PreparedRows.
class Scratch {
 public:
  explicit Scratch(const LinearArgs& args)
      : sums_(static_cast<size_t>(args.rows)), scales_(static_cast<size_t>(args.rows)) {
    if (args.rows == 0) return;
    const size_t inputs = static_cast<size_t>(args.rows) * static_cast<size_t>(args.matrix.k);
    rows_.sums = sums_.data();
    rows_.scales = scales_.data();
    if (HasPortableBits(args.matrix)) {
      quanta_ = hwy::AllocateAligned<int16_t>(inputs * kStepActivations / kStep);
      rows_.quanta = quanta_.get();
      TP2_CHECK(rows_.quanta != nullptr);
    } else {
      halves_ = hwy::AllocateAligned<float>(inputs);
      rows_.halves = halves_.get();
      TP2_CHECK(rows_.halves != nullptr);
    }
  }
  const PreparedRows& rows() const { return rows_; }

 private:
  hwy::AlignedFreeUniquePtr<int16_t[]> quanta_;
  hwy::AlignedFreeUniquePtr<float[]> halves_;
  std::vector<int64_t> sums_;
  std::vector<float> scales_;
  PreparedRows rows_;
};

void CheckArgs(const LinearArgs& args) {
  const MatrixView& matrix = args.matrix;
  TP2_CHECK(args.rows >= 0);
  TP2_CHECK(matrix.k > 0 && matrix.k % kStep == 0 && matrix.k <= kMaxInputs);
  TP2_CHECK(matrix.n > 0 && matrix.n % kStep == 0);
  TP2_CHECK(matrix.bits >= 1 && matrix.bits <= kMaxBits);
  TP2_CHECK(matrix.trellis != nullptr && matrix.suh != nullptr && matrix.svh != nullptr);
  if (args.rows == 0) return;
  TP2_CHECK(args.x != nullptr && args.y != nullptr);
  TP2_CHECK(args.rows == 1 || (args.x_stride >= matrix.k && args.y_stride >= matrix.n));
}

// Numbers the jobs of several matrices consecutively.
class JobList {
 public:
  void Append(int64_t jobs) { ends_.push_back(count() + jobs); }
  int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }
  // Calls body(matrix index, job index inside the matrix) for every job.
  template <class Body>
  void Run(ThreadPool& pool, Body body) const {
    pool.ParallelFor(count(), [this, &body](int64_t job) {
      const auto matrix = std::upper_bound(ends_.begin(), ends_.end(), job) - ends_.begin();
      const int64_t begin = matrix == 0 ? 0 : ends_[matrix - 1];
      body(static_cast<size_t>(matrix), static_cast<int>(job - begin));
    });
  }

 private:
  std::vector<int64_t> ends_;
};

}  // namespace

bool HasPortableBits(const MatrixView& matrix) { return matrix.codebook == Codebook::kMul1; }

void LinearBatch(std::span<const LinearArgs> batch, ThreadPool& pool) {
  std::vector<Scratch> scratch;
  scratch.reserve(batch.size());
  JobList row_jobs, block_jobs;
  for (const LinearArgs& args : batch) {
    CheckArgs(args);
    scratch.emplace_back(args);
    row_jobs.Append(args.rows);
    block_jobs.Append(args.rows == 0 ? 0 : args.matrix.n / kStep);
  }
  row_jobs.Run(pool, [&](size_t matrix, int row) {
    std::vector<float> transformed(static_cast<size_t>(batch[matrix].matrix.k));
    PrepareRow(batch[matrix], row, scratch[matrix].rows(), transformed.data());
  });
  block_jobs.Run(pool, [&](size_t matrix, int block) {
    const auto sums =
        hwy::AllocateAligned<int64_t>(static_cast<size_t>(batch[matrix].rows) * kStep);
    TP2_CHECK(sums != nullptr);
    ComputeBlock(batch[matrix], scratch[matrix].rows(), block, sums.get());
  });
}

void Linear(const LinearArgs& args, ThreadPool& pool) {
  LinearBatch(std::span<const LinearArgs>(&args, 1), pool);
}

}  // namespace tp2::exl3
