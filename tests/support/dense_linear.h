// Products with fully decoded weights, as the golden run made them: weights decoded in float64 and
// rounded to fp32, sums in float64. Replaces the exact integer path in tests that look at
// everything else.
#pragma once

#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "libcore/base/thread_pool.h"
#include "libcore/exl3/decode.h"
#include "libcore/exl3/linear.h"

namespace tp2 {

class DenseLinear {
 public:
  void Run(std::span<const exl3::LinearArgs> batch, ThreadPool& pool) {
    for (const exl3::LinearArgs& args : batch) {
      const std::vector<float>& weights = Weights(args.matrix);
      pool.ParallelFor(args.rows, [&](int64_t row) {
        std::vector<double> sums(static_cast<size_t>(args.matrix.n));
        for (int k = 0; k < args.matrix.k; ++k) {
          const double x = args.x[row * args.x_stride + k];
          const float* w = weights.data() + static_cast<int64_t>(k) * args.matrix.n;
          for (int n = 0; n < args.matrix.n; ++n) sums[n] += x * w[n];
        }
        for (int n = 0; n < args.matrix.n; ++n) {
          args.y[row * args.y_stride + n] = static_cast<float>(sums[n]);
        }
      });
    }
  }

 private:
  const std::vector<float>& Weights(const exl3::MatrixView& matrix) {
    std::vector<float>& dense = dense_[{matrix.trellis, matrix.k, matrix.n}];
    if (dense.empty()) {
      const std::vector<double> exact = exl3::DenseWeights(matrix, exl3::WeightForm::kFp16);
      dense.assign(exact.begin(), exact.end());
    }
    return dense;
  }

  // Keyed by address and sizes: the two halves of a row-cut matrix are two views.
  std::map<std::tuple<const uint16_t*, int, int>, std::vector<float>> dense_;
};

}  // namespace tp2
