// A worker and an engine of our own, driven with the same calls: whatever the worker drafts must
// have the engine's bits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/client/client.h"
#include "libcore/drafter/step_engine.h"

namespace tp2::selftest {

struct TwinSlot {
  int local = 0;  // slot of our engine
  uint16_t slot = 0;
  uint64_t generation = 0;
  int64_t base = 0;
  int64_t length = 0;
};

struct StepPart {
  TwinSlot* slot = nullptr;
  int64_t position = 0;
  int row_count = 0;
  uint32_t anchor = 0;
};

// A STEP message and the rows it points into.
struct BuiltStep {
  contract::StepMessage message;
  std::vector<Bf16> rows;
};

class Twin {
 public:
  // `client` has said HELLO. Both outlive the twin.
  Twin(client::Client* client, StepEngine* engine, uint64_t seed)
      : client_(client), engine_(engine), seed_(seed) {}

  client::Client& client() { return *client_; }
  StepEngine& engine() { return *engine_; }

  absl::StatusOr<TwinSlot> Open(int local, int64_t base);
  absl::Status Close(const TwinSlot& slot);
  absl::Status Insert(TwinSlot* slot, int64_t position, int row_count);

  // STEPs both. Errors: what differed, or why one of them refused.
  absl::StatusOr<contract::StepReply> Step(std::span<const StepPart> parts, int n_out);

  // How long the worker took for the last STEP, from its first byte to the reply.
  int64_t last_worker_ns() const { return last_worker_ns_; }

  // Rows are new ones with every call.
  BuiltStep Build(std::span<const StepPart> parts, int n_out);
  absl::StatusOr<StepOutputs> StepLocal(std::span<const StepPart> parts, const BuiltStep& step);

 private:
  std::vector<Bf16> NewRows(int local, int64_t position, int row_count);

  client::Client* client_;
  StepEngine* engine_;
  uint64_t seed_;
  int64_t last_worker_ns_ = 0;
};

// Error when the code is another one: `what: expected BAD_ENTRY, got OK`.
absl::Status ExpectCode(const char* what, contract::Code expected, contract::Code got);

}  // namespace tp2::selftest
