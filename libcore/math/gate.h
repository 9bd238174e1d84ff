// Expert routing: affinity, biased top-k selection, normalized weights. Source: research note
// dspark-model 3.7. Same bits on host and device.
#pragma once

#include <cmath>

#include "libcore/math/hd.h"
#include "libcore/math/transcendental.h"

namespace tp2 {

inline constexpr int kMaxExpertsPerToken = 8;

// sqrt(softplus(logit)).
TP2_HD inline float GateAffinity(float logit) { return std::sqrt(Softplus(logit)); }

// True when candidate (score a, expert ea) is chosen before (score b, expert eb): higher score,
// then lower id.
TP2_HD inline bool GateBefore(float a, int ea, float b, int eb) {
  return a > b || (a == b && ea < eb);
}

struct GateChoice {
  int experts[kMaxExpertsPerToken];    // descending by affinity + bias
  float weights[kMaxExpertsPerToken];  // of the unbiased affinities, same order
};

// affinity, bias: [expert_count]. The bias only selects; weights are affinity / (sum + 1e-20) *
// route_scale.
TP2_HD inline GateChoice ChooseExperts(const float* affinity, const float* bias, int expert_count,
                                       int top_k, float route_scale) {
  GateChoice choice = {};
  float scores[kMaxExpertsPerToken];
  int filled = 0;
  for (int e = 0; e < expert_count; ++e) {
    const float score = affinity[e] + bias[e];
    int at = filled;
    while (at > 0 && GateBefore(score, e, scores[at - 1], choice.experts[at - 1])) --at;
    if (at == top_k) continue;
    const int last = filled < top_k ? filled++ : top_k - 1;
    for (int i = last; i > at; --i) {
      scores[i] = scores[i - 1];
      choice.experts[i] = choice.experts[i - 1];
    }
    scores[at] = score;
    choice.experts[at] = e;
  }
  float sum = 0.0f;
  for (int i = 0; i < top_k; ++i) sum = sum + affinity[choice.experts[i]];
  const float divisor = sum + 1e-20f;
  for (int i = 0; i < top_k; ++i) {
    choice.weights[i] = (affinity[choice.experts[i]] / divisor) * route_scale;
  }
  return choice;
}

}  // namespace tp2
