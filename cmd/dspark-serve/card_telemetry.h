// The cards of the engine, watched for the admin port. A worker without telemetry serves as well:
// nothing here ends it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "libcore/config/worker_config.h"
#include "libcore/drafter/step_engine.h"
#include "libcore/telemetry/card_watch.h"

namespace tp2::serve {

class CardTelemetry {
 public:
  // Forks a helper when a card may be used: call before any thread exists. A helper that cannot be
  // started shows in Watch.
  explicit CardTelemetry(const config::WorkerConfig& config);

  // Starts to sample the cards that `gpus` names, else those that the engine says it uses; null
  // when there are none or telemetry is off. Call once. Errors: why they cannot be watched.
  absl::StatusOr<std::unique_ptr<telemetry::CardWatch>> Watch(const EngineInfo& engine);

 private:
  const std::vector<std::string> gpus_;
  std::optional<absl::StatusOr<telemetry::HelperProcess>> helper_;
};

// "rank 0 NVIDIA H200 GPU-..., driver 580.1" of what is watched.
std::string Describe(const telemetry::WatchedCards& cards);

}  // namespace tp2::serve
