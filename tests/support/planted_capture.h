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
  // Adds small noise to margins and confidence and names a foreign engine; without it the capture
  // is exactly our drafter's.
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

// Windows A and B, margins, confidence and routing; no logits. `model_dir`: a V4.1 checkpoint.
absl::StatusOr<Planted> WritePlantedCapture(const std::string& model_dir,
                                            const std::string& capture_dir,
                                            const PlantedOptions& options);

}  // namespace tp2
