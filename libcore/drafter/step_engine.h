// The face of a drafter for servers and tools: type-erased once, so that neither knows which op set
// or how many ranks stand behind it. One virtual call per STEP.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/base/digest.h"
#include "libcore/math/bf16.h"
#include "libcore/model/drafter_config.h"
#include "libcore/model/slot_window.h"
#include "libcore/ops/graph_key.h"
#include "libcore/tuning/table_use.h"

namespace tp2 {

// What a context row holds.
enum class RowKind : uint16_t {
  kTaps = 1,   // tap_values() bf16 values: the target's taps, ascending layers (production; capture
               // window B)
  kMainX = 2,  // dim bf16 values: main_norm(main_proj(taps)) already computed (capture window A)
};

// Rows of one slot for consecutive positions.
struct InsertRows {
  int slot = 0;
  int64_t position = 0;  // of the first row; see SlotWindow::Check
  RowKind kind = RowKind::kTaps;
  int row_count = 0;             // 0 .. kMaxRowsPerMessage; 0 only rolls back to `position`
  std::span<const Bf16> values;  // [row_count, values of one row], row-major, contiguous
};

// One request of a STEP: insert its rows, then draft after `anchor`, which stands at position +
// row_count.
struct StepEntry {
  InsertRows rows;
  int32_t anchor = 0;  // token id, 0 .. vocab-1
};

struct StepRequest {
  std::span<const StepEntry> entries;  // 1 .. kMaxRequests, distinct slots
  int n_out = kBlockRows;              // 1 .. kBlockRows
  bool wants_margins = true;           // without: the same drafts, sooner, and no runner-ups
  bool wants_debug = false;            // also return base logits and head hidden
};

// Drafts of one request; positions at and beyond n_out, and margins that were not wanted, hold
// token -1 and zeros.
struct EntryOutput {
  std::array<int32_t, kBlockRows> tokens;
  std::array<float, kBlockRows> confidence_logit;
  std::array<float, kBlockRows> margin;       // best minus second best biased logit
  std::array<int32_t, kBlockRows> runner_up;  // token of the second best
  int window_rows;                            // context rows the block attended to
};

struct StepOutputs {
  std::vector<EntryOutput> entries;  // in request order
  // Debug only: [entries, n_out, vocab] and [entries, n_out, dim], fp32, row-major.
  std::vector<float> base_logits;
  std::vector<float> head_hidden;
  // Host wall. A device works behind the host's back: there insert_ns ends when the insert is
  // enqueued, draft_ns when the drafts are on the host.
  int64_t insert_ns = 0;
  int64_t draft_ns = 0;
  // Between events of the first rank's stream; 0 where there is no device.
  int64_t insert_device_ns = 0;
  int64_t draft_device_ns = 0;
  int64_t last_draft_device_ns = 0;  // of the last rank's
};

// Who the engine is: what HELLO compares and what results record.
struct EngineInfo {
  DrafterConfig config;
  int64_t max_positions = 0;       // --max-model-len
  Sha256Digest identity_digest{};  // of the checkpoint manifest (names, dtypes, shapes, content)
  uint64_t numerics_version = 0;
  bool portable_bits = true;  // false when a matrix uses a codebook without an exact integer path
  int tp = 1;
  std::string mode;     // "one-card"
  std::string backend;  // "cpu" or "cuda"
  std::vector<std::string> device_names;
};

// A tensor of which every rank holds a copy, all equal after every STEP.
struct ReplicatedTensor {
  std::string name;       // "ring 0", "streams", "tokens"
  int element_bytes = 1;  // 2 or 4
  std::vector<std::vector<std::byte>> by_rank;
};

class StepObserver;

// Thread-compatible: calls never overlap. A thread other than the one that made the engine calls
// UseThread before anything else.
class StepEngine {
 public:
  virtual ~StepEngine() = default;

  // What devices keep per thread, such as which card is current.
  virtual void UseThread() {}

  virtual const EngineInfo& info() const = 0;

  // Forgets everything in `slot`; its first row will have position `base`.
  virtual absl::Status ResetSlot(int slot, int64_t base) = 0;
  virtual const SlotWindow& window(int slot) const = 0;

  // Puts rows into a slot without drafting.
  // Errors: kOutOfRange / kInvalidArgument for arguments outside the contract (nothing changed);
  // kInternal when the insert failed: the slot's rows are then undefined until ResetSlot; kAborted
  // when the device failed: the engine is not healthy from then on.
  virtual absl::Status Insert(const InsertRows& rows) = 0;

  // Inserts, then drafts. All arguments of all entries are checked before anything runs; errors as
  // Insert.
  virtual absl::StatusOr<StepOutputs> Step(const StepRequest& request) = 0;

  // Shows intermediate tensors of later steps (observer.h); nullptr ends it. False when this engine
  // has nothing to show.
  virtual bool SetObserver(StepObserver* observer) { return false; }

  // The replicated state as it is now. Errors: kUnimplemented for an engine that does not tell;
  // kAborted when the device failed.
  virtual absl::StatusOr<std::vector<ReplicatedTensor>> ReadReplicas();
  // Changes one bit of the last rank's copy, to see whether an audit finds it. Errors: kNotFound
  // for an unknown name, kOutOfRange for a bit beyond the tensor; as ReadReplicas.
  virtual absl::Status FlipReplicaBit(const std::string& name, int64_t bit);

  // What each graph key replays; empty where nothing is recorded.
  virtual std::vector<GraphSize> GraphSizes() const { return {}; }
  // What the engine's launches found in its kernel table so far; recording looks all of them up.
  virtual tuning::TableUse kernel_table_use() const { return {}; }

  // Between STEPs that are not due: what would otherwise take its time from one of them later.
  // Errors as Insert.
  virtual absl::Status MaintainWhileIdle() { return absl::OkStatus(); }

  // False once the engine cannot be used again in this process.
  virtual bool is_healthy() const = 0;
};

}  // namespace tp2
