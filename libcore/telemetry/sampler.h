// Reads one Sample of chosen cards through an open Nvml.
#pragma once

#include <span>
#include <vector>

#include "libcore/telemetry/cards.h"
#include "libcore/telemetry/nvml.h"
#include "libcore/telemetry/sample.h"

namespace tp2::telemetry {

// Thread-compatible. `nvml` must outlive it.
class Sampler {
 public:
  // `cards` in rank order; a card that does not answer shows in every sample's error.
  Sampler(const Nvml* nvml, std::span<const CardInfo> cards);

  // Can block as long as the driver does.
  Sample Read() const;

 private:
  CardSample ReadCard(const CardInfo& card) const;

  const Nvml* nvml_;
  std::vector<CardInfo> cards_;
};

}  // namespace tp2::telemetry
