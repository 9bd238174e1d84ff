// Audit of a split drafter while it runs: do all ranks still hold the same state? The ranks compute
// it each for itself, so that a difference of one bit now is other drafts later.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "libcore/drafter/step_engine.h"
#include "libcore/parity/self_run.h"

namespace tp2 {

// The first element in which a rank's copy is not rank 0's, as
// "ring 1 element 4711: rank 0 3f80, rank 1 3f81"; nothing when all are equal.
std::optional<std::string> FindReplicaDifference(std::span<const ReplicatedTensor> replicas);

struct AuditOptions {
  int rounds = 41;
  uint64_t seed = 1;
  int every = 1;           // rounds between two audits
  std::string plant = {};  // a tensor's name: after half of the rounds one bit of it is changed
};

struct AuditResult {
  int rounds = 0;
  int audits = 0;
  int tensors = 0;         // compared by each audit
  int64_t bytes = 0;       // of one rank's copies
  std::string difference;  // of the last audit, with its round; empty: all were equal
};

// Drives `engine` as RunSelf does and stops at the first difference. Errors: the engine's.
absl::StatusOr<AuditResult> RunAudit(StepEngine& engine, const AuditOptions& options);

}  // namespace tp2
