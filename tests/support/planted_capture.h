// A capture whose differences from our drafter are known: our own drafts, with near-ties, routing
// flips and one real mismatch planted among them. Deterministic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tp2 {

struct PlantedOptions {
  int rounds = 64;
  uint64_t seed = 3;
  int near_ties = 5;
  int routing_flips = 3;
  bool has_mismatch = true;
  // An engine that was fed main_x, with small noise on margins and confidence, windows A and B.
  // Otherwise our drafter's own bits from taps: window B only.
  bool is_foreign = true;
};

struct PlantedPlace {
  int64_t round = 0;
  int block = 0;
  friend bool operator==(const PlantedPlace&, const PlantedPlace&) = default;
  friend auto operator<=>(const PlantedPlace&, const PlantedPlace&) = default;
};

struct Planted {
  std::vector<PlantedPlace> near_ties, routing_flips, mismatches;
};

// With margins, confidence and routing, without logits. `model_dir`: a V4.1 checkpoint.
absl::StatusOr<Planted> WritePlantedCapture(const std::string& model_dir,
                                            const std::string& capture_dir,
                                            const PlantedOptions& options);

}  // namespace tp2
