// The named shapes of synthetic checkpoints: sizes of the public drafters and of small ones for
// machines without a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libcore/model/drafter_config.h"

namespace tp2 {

struct SyntheticShape {
  std::string name;
  std::string summary;  // half a line for help texts
  DrafterConfig config;
  int expert_bits = 2;
  int dense_bits = 5;
  int head_bits = 6;
  // The variants that public packs show: another width and codebook for every matrix, wo_a as EXL3
  // slices, Markov tensors in fp16.
  bool is_mixed = false;
};

// tiny, tiny-v4, tiny-mixed, medium, v41-flash, v4-flash, v4-pro.
const std::vector<SyntheticShape>& SyntheticShapes();

// nullptr when there is no such shape.
const SyntheticShape* FindSyntheticShape(std::string_view name);

// A config.json in the style of the published ones, traps included: V4.1's fields under
// text_config with trunk numbers that differ from the drafter's, V4's stage count visible in
// compress_ratios alone. ParseDrafterConfig gives back shape.config.
std::string SyntheticConfigText(const SyntheticShape& shape, uint64_t seed);

}  // namespace tp2
