// Hyper-connection (mHC) coefficients and stream arithmetic for one row of four streams.
// Source: research note dspark-model 3.5. Same bits on host and device.
#pragma once

#include <cmath>

#include "libcore/math/hd.h"
#include "libcore/math/transcendental.h"

namespace tp2 {

inline constexpr int kStreams = 4;
inline constexpr int kMixOutputs = 2 * kStreams + kStreams * kStreams;  // pre, post, combination

struct MixCoefficients {
  float pre[kStreams];
  float post[kStreams];
  float comb[kStreams][kStreams];  // first index is summed in the update
};

struct MixParameters {
  float scale[3];  // pre, post, combination
  float base[kMixOutputs];
  float hc_eps;
  int sinkhorn_iterations;  // the first one is softmax and column step, the rest row and column
                            // steps
};

// One column step (over_rows true: divide by sums over the first index) or row step of the Sinkhorn
// iteration.
TP2_HD inline void SinkhornStep(float (&c)[kStreams][kStreams], bool over_rows, float eps) {
  for (int a = 0; a < kStreams; ++a) {
    float sum = 0.0f;
    for (int b = 0; b < kStreams; ++b) sum = sum + (over_rows ? c[b][a] : c[a][b]);
    const float divisor = sum + eps;
    for (int b = 0; b < kStreams; ++b) {
      float& entry = over_rows ? c[b][a] : c[a][b];
      entry = entry / divisor;
    }
  }
}

// dots: [24] (fn . streams) before normalization; inverse_rms: 1 / sqrt(mean(streams^2) +
// norm_eps).
TP2_HD inline MixCoefficients ComputeMix(const float* dots, float inverse_rms,
                                         const MixParameters& parameters) {
  MixCoefficients mix = {};
  const float* base = parameters.base;
  for (int i = 0; i < kStreams; ++i) {
    const float pre = std::fma(dots[i] * inverse_rms, parameters.scale[0], base[i]);
    const float post =
        std::fma(dots[kStreams + i] * inverse_rms, parameters.scale[1], base[kStreams + i]);
    mix.pre[i] = Sigmoid(pre) + parameters.hc_eps;
    mix.post[i] = 2.0f * Sigmoid(post);
  }
  for (int i = 0; i < kStreams; ++i) {
    float row[kStreams];
    float row_max = 0.0f;
    for (int j = 0; j < kStreams; ++j) {
      const int at = 2 * kStreams + i * kStreams + j;
      row[j] = std::fma(dots[at] * inverse_rms, parameters.scale[2], base[at]);
      if (j == 0 || row[j] > row_max) row_max = row[j];
    }
    float sum = 0.0f;
    for (int j = 0; j < kStreams; ++j) {
      row[j] = Exp(row[j] - row_max);
      sum = sum + row[j];
    }
    for (int j = 0; j < kStreams; ++j) mix.comb[i][j] = row[j] / sum + parameters.hc_eps;
  }
  SinkhornStep(mix.comb, true, parameters.hc_eps);
  for (int i = 1; i < parameters.sinkhorn_iterations; ++i) {
    SinkhornStep(mix.comb, false, parameters.hc_eps);
    SinkhornStep(mix.comb, true, parameters.hc_eps);
  }
  return mix;
}

// sum_i weights[i] * h[i], ascending i; h[i] is stream i's element.
TP2_HD inline float CollapseElement(const float* weights, const float* h) {
  float sum = weights[0] * h[0];
  for (int i = 1; i < kStreams; ++i) sum = std::fma(weights[i], h[i], sum);
  return sum;
}

// post_j * y + sum_i comb[i][j] * h[i], ascending i.
TP2_HD inline float UpdateElement(const MixCoefficients& mix, int j, float y, const float* h) {
  float sum = mix.post[j] * y;
  for (int i = 0; i < kStreams; ++i) sum = std::fma(mix.comb[i][j], h[i], sum);
  return sum;
}

}  // namespace tp2
