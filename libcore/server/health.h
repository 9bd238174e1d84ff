// The worker's state and counters: written by the controller, read by every connection, because
// HEALTH must be answered while a STEP runs. Thread-safe.
//
// STARTING -> READY <-> DEGRADED (failures in a row, below the limit); any -> DRAINING; any ->
// POISONED, which nothing leaves.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "libcore/base/clock.h"
#include "libcore/contract/messages.h"

namespace tp2::server {

class Health {
 public:
  Health(const contract::Uuid& instance, const Sha256Digest& identity, int tp, const Clock* clock);

  contract::HealthReply Snapshot() const;
  contract::WorkerState state() const;
  bool is_draining() const;
  int failures_in_a_row() const;

  void MarkReady();
  void BeginDrain();
  void Poison(const std::string& reason);

  void NoteGoodStep(int64_t step_us);
  // A STEP of our own: evidence like a client's, but not one of its STEPs.
  void NoteGoodCanary();
  // No STEP succeeded in the last `age_ms`, or none ever did.
  bool IsOlderThan(int64_t age_ms) const;
  // Engine times of the last good STEPs in microseconds, ascending.
  std::vector<uint32_t> SortedStepTimes() const;
  void NoteInsert();
  // A failed STEP, INSERT or OPEN; returns the failures in a row. Only a good STEP ends the row:
  // a client answers a failure with CLOSE, OPEN and INSERT, whose success proves little.
  int NoteFailure(bool is_step, const std::string& reason);
  void NoteReset();
  void SetUse(int sessions, int open_slots);

 private:
  static constexpr size_t kStepSamples = 1024;

  contract::WorkerState StateLocked() const;

  const Clock* clock_;
  const int64_t start_ns_;
  mutable std::mutex mutex_;
  contract::HealthReply counters_;  // guarded by mutex_; state and times are filled in by Snapshot
  bool is_ready_ = false;           // guarded by mutex_
  bool is_draining_ = false;        // guarded by mutex_
  bool is_poisoned_ = false;        // guarded by mutex_
  bool has_good_step_ = false;      // guarded by mutex_
  int64_t last_good_step_ns_ = 0;   // guarded by mutex_
  std::array<uint32_t, kStepSamples> step_us_{};  // guarded by mutex_; ring
  size_t step_samples_ = 0;                       // guarded by mutex_; ever taken
};

}  // namespace tp2::server
