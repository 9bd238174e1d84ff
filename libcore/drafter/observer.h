// A look inside a step for tests and diagnosis: named intermediate tensors as they appear.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tp2 {

// Names are those of the golden files: "main_x", "s0.attn_in", "base_logits", ...; values are
// widened to fp32.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void OnTensor(const std::string& name, std::vector<int64_t> shape,
                        std::span<const float> values) = 0;
};

}  // namespace tp2
