// A capture's rounds through one engine, and a closer look at single blocks.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/capture/capture_reader.h"
#include "libcore/checkpoint/weights.h"
#include "libcore/drafter/step_engine.h"

namespace tp2 {

// One position of a block, looked at closely.
struct PositionDetail {
  int32_t token = -1;             // our draft
  double token_logit = 0;         // its biased logit
  double engine_token_logit = 0;  // ours, of the engine's draft
};

struct BlockDetail {
  std::array<PositionDetail, kBlockRows> positions;
  // Ours, as the capture's: empty without an observer (CUDA engines).
  std::vector<int32_t> experts;  // [stages, kBlockRows, experts_per_token]
  std::vector<float> scores;     // [stages, kBlockRows, experts] affinity + bias
  double logit_spread = 0;       // standard deviation of the base logits over the vocabulary
};

// Thread-compatible. Drives `engine`, whose slots it resets.
class Replayer {
 public:
  // `weights`: the engine's checkpoint, for single logits and router biases.
  Replayer(StepEngine& engine, const CaptureReader& capture, CaptureWindow window,
           const DrafterWeights& weights);

  // Round `round`; rounds must be replayed in order. Errors: the engine's.
  absl::StatusOr<StepOutputs> Step(const CaptureRound& round, bool wants_debug);

  // Drafts one block of the latest round again, without new rows: the same bits, with everything
  // that a verdict may need.
  absl::StatusOr<BlockDetail> Look(const CaptureRound& round, int block);

 private:
  StepEngine& engine_;
  const CaptureInfo& info_;
  CaptureWindow window_;
  const DrafterWeights& weights_;
};

}  // namespace tp2
