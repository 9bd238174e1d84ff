// The host's side of a pair's safety: when its ranks may be launched, when their states may be read
// and cleared, and the poison after which neither. Knows no device: whoever runs the ranks, cards
// or threads, hands in what it can do.
//
// Poison is for good: after an idle wait that ran out or a device error nobody knows what still
// runs, and only the end of the process ends that. Nothing here clears a device's sticky error.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "libcore/collectives/protocol.h"

namespace tp2::coll {

// "local timeout, invalid id" for the bits of an error word.
std::string ErrorText(uint32_t error_bits);

// What the latch may ask for. Errors other than kDeadlineExceeded are device errors.
struct LatchHooks {
  // Returns when everything ever queued on any stream of any rank has ended, or kDeadlineExceeded
  // after `timeout_ms`.
  std::function<absl::Status(int64_t timeout_ms)> wait_idle;
  // The ranks' error words. Called while idle.
  std::function<absl::Status(std::vector<uint32_t>& errors)> read_errors;
  // Clears all states and starts the next generation on every rank. Called while idle.
  std::function<absl::Status()> clear_states;
};

struct LatchOptions {
  int64_t idle_timeout_ms = 10'000;  // longer than the longest bounded wait of a STEP's kernels
  uint32_t max_epoch = kMaxEpoch;    // of the ranks' views
  // Operations after which the next launch begins with a drained reset; at most max_epoch.
  uint32_t reset_after = kMaxEpoch / 2;
};

// Thread-compatible, one controller; is_poisoned from any thread.
class PairLatch {
 public:
  PairLatch(const LatchOptions& options, LatchHooks hooks);

  // Before every launch or replay, with the number of collectives it runs on a rank. When epochs
  // run low it first checks the ranks as CheckStep does, then resets. Refused with
  // kFailedPrecondition: poisoned, or an error not yet reset, or more operations than a generation
  // has epochs.
  absl::Status BeforeLaunch(int64_t operation_count);

  // Waits until the ranks are idle and reads their error words. After an error of the protocol the
  // pair must be reset; outputs are not to be used. kDeadlineExceeded, kCancelled or kInternal by
  // the bits; after a device error or a late rank, its status: the pair is poisoned.
  absl::Status CheckStep();

  // Drains, clears the states, starts the next generation.
  absl::Status Reset();

  // In a gap between STEPs: resets when half of `reset_after` is used up, so that no launch has to.
  // Errors as CheckStep.
  absl::Status MaintainWhileIdle();

  // Poisons the pair: a launch, a copy or an event failed. Returns `status`.
  absl::Status NoteDeviceError(const absl::Status& status);

  bool is_poisoned() const { return is_poisoned_.load(); }
  const std::string& poison_reason() const { return poison_reason_; }
  bool needs_reset() const { return needs_reset_; }

 private:
  absl::Status RefusalIfPoisoned() const;
  absl::Status WaitIdle();

  LatchOptions options_;
  LatchHooks hooks_;
  int64_t launched_operations_ = 0;  // since the latest reset: no rank's epoch is higher
  bool needs_reset_ = false;
  std::string poison_reason_;
  std::atomic<bool> is_poisoned_ = false;
};

}  // namespace tp2::coll
