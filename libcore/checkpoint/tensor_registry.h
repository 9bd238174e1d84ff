// The complete list of a drafter's tensors, derived from its config: names, logical shapes and the
// forms in which a file may store them. Source: research note dspark-model, section 2. The loader
// binds from it, the synthesizer writes from it, so a tensor missing here exists nowhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libcore/model/drafter_config.h"

namespace tp2 {

enum class Storage : uint8_t {
  kExl3,              // NAME.trellis, .suh, .svh and at most one of .mul1 and .mcg
  kOutputProjection,  // NAME.weight e4m3 with NAME.scale, or EXL3 matrices NAME.slice.G
  kHalf,              // NAME itself, BF16 or F16
  kFloat,             // NAME itself, F32
  kUnusedFloat,       // NAME itself, F32; may be absent, never read
};

struct TensorRule {
  std::string name;
  Storage storage = Storage::kHalf;
  // [outputs, inputs] for matrices, as the published checkpoint has them; [values] for vectors.
  std::vector<int64_t> shape;

  int outputs() const { return static_cast<int>(shape.front()); }
  int inputs() const { return static_cast<int>(shape.back()); }
};

// "mtp.1." and names below it.
std::string StagePrefix(int stage);
std::string ExpertPrefix(int stage, int expert);  // "mtp.1.ffn.experts.7."

// Markov tensors of the last stage: the two archs spell them differently.
std::string MarkovEmbedName(const DrafterConfig& config);
std::string MarkovHeadName(const DrafterConfig& config);

// In the order of the forward pass: embedding, stages, head.
std::vector<TensorRule> ExpectedTensors(const DrafterConfig& config);

// Names under `mtp.STAGE.` in DeepSeek's own (not EXL3) checkpoint: each matrix is a weight and a
// scale. V4.1-Flash: 801, 798 and 802 for the stages; V4-Flash: 1568, 1565 and 1572.
std::vector<std::string> PublishedNames(const DrafterConfig& config, int stage);

}  // namespace tp2
