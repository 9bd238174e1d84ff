// The two element-wise operations of the hyper-connection streams, vectorised over the columns of
// one row. Same bits as CollapseElement and UpdateElement of math/mixing.h for every vector width.
#pragma once

#include "libcore/math/mixing.h"

namespace tp2 {

// x[i] = sum_s weights[s] * streams[s][i]. streams: [4, columns]; x: [columns], must not overlap.
void CollapseStreams(const float* weights, const float* streams, int columns, float* x);

// streams[j][i] = post[j] * y[i] + sum_s comb[s][j] * streams[s][i], in place. streams: [4,
// columns]; y: [columns].
void UpdateStreams(const MixCoefficients& mix, const float* y, int columns, float* streams);

}  // namespace tp2
