// The clamped SwiGLU of the experts. Source: research note dspark-model 3.8. Same bits on host and
// device.
#pragma once

#include "libcore/math/hd.h"
#include "libcore/math/transcendental.h"

namespace tp2 {

// silu(min(gate, limit)) * clamp(up, -limit, limit): the gate side is clamped only from above. NaN
// passes through.
TP2_HD inline float SwiGlu(float gate, float up, float limit) {
  const float g = gate > limit ? limit : gate;
  const float u = up > limit ? limit : (up < -limit ? -limit : up);
  return Silu(g) * u;
}

}  // namespace tp2
