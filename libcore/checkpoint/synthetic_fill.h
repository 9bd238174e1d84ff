// Contents of synthetic tensors, element by element from (seed, tensor name, index): any part can
// be made without the rest, by any thread, with the same bytes on every machine. Integer arithmetic
// and single IEEE operations only; nothing here calls libm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "libcore/checkpoint/tensor_view.h"

namespace tp2 {

enum class FillKind : uint8_t {
  kBits,         // random bits
  kConstant,     // the 32 bits of `constant`
  kSigned,       // F16: random sign, magnitude uniform in center * [0.6, 1.4)
  kBell,         // BF16, F16 or F32: center + spread * z, |z| < 3.47, z of variance 1
  kThree,        // F32 [3]: 0.8, 1.05 and 2.5, each times [0.95, 1.05)
  kFp8Bell,      // F8_E4M3: spread * z
  kBlockScales,  // F32: 2^exponent or 2^(exponent - 1)
};

struct Fill {
  FillKind kind = FillKind::kBits;
  float center = 0;
  float spread = 0;
  int exponent = 0;
  uint32_t constant = 0;
};

// Writes the elements from `first_element` on into `out`, whose bytes are whole elements of `dtype`
// (kBits: `first_element` counts elements whose bytes are a multiple of 8).
void FillElements(const Fill& fill, DType dtype, uint64_t stream, int64_t first_element,
                  std::span<std::byte> out);

}  // namespace tp2
