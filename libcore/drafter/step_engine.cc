#include "libcore/drafter/step_engine.h"

#include "libcore/base/error.h"

namespace tp2 {
namespace {

absl::Status TellsNothing() {
  return MakeError(absl::StatusCode::kUnimplemented, {.what = "replicated state",
                                                      .expected = "an engine that shows it",
                                                      .got = "one that does not"});
}

}  // namespace

absl::StatusOr<std::vector<ReplicatedTensor>> StepEngine::ReadReplicas() { return TellsNothing(); }

absl::Status StepEngine::FlipReplicaBit(const std::string& name, int64_t bit) {
  return TellsNothing();
}

}  // namespace tp2
