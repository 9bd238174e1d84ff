#include "libcore/server/health.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "libcore/base/percentile.h"

namespace tp2::server {

Health::Health(const contract::Uuid& instance, const Sha256Digest& identity, int tp,
               const Clock* clock)
    : clock_(clock), start_ns_(clock->NowNs()) {
  counters_.instance = instance;
  counters_.identity = identity;
  counters_.tp = static_cast<uint16_t>(tp);
}

contract::WorkerState Health::StateLocked() const {
  if (is_poisoned_) return contract::WorkerState::kPoisoned;
  if (is_draining_) return contract::WorkerState::kDraining;
  if (!is_ready_) return contract::WorkerState::kStarting;
  return counters_.failures_in_a_row > 0 ? contract::WorkerState::kDegraded
                                         : contract::WorkerState::kReady;
}

contract::HealthReply Health::Snapshot() const {
  contract::HealthReply reply;
  {
    const std::lock_guard lock(mutex_);
    const int64_t now_ns = clock_->NowNs();
    reply = counters_;
    reply.state = StateLocked();
    reply.uptime_us = static_cast<uint64_t>((now_ns - start_ns_) / 1000);
    if (has_good_step_) {
      reply.last_good_step_age_us = static_cast<uint64_t>((now_ns - last_good_step_ns_) / 1000);
    }
  }
  const std::vector<uint32_t> sorted = SortedStepTimes();
  if (sorted.empty()) return reply;
  reply.step_us_p50 = NearestRank(sorted, 50);
  reply.step_us_p99 = NearestRank(sorted, 99);
  reply.step_us_max = sorted.back();
  return reply;
}

contract::WorkerState Health::state() const {
  const std::lock_guard lock(mutex_);
  return StateLocked();
}

bool Health::is_draining() const {
  const std::lock_guard lock(mutex_);
  return is_draining_;
}

int Health::failures_in_a_row() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(counters_.failures_in_a_row);
}

void Health::MarkReady() {
  const std::lock_guard lock(mutex_);
  is_ready_ = true;
}

void Health::BeginDrain() {
  const std::lock_guard lock(mutex_);
  is_draining_ = true;
}

void Health::Poison(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  is_poisoned_ = true;
  counters_.last_error = reason.substr(0, 64);
}

void Health::NoteGoodStep(int64_t step_us) {
  const std::lock_guard lock(mutex_);
  ++counters_.steps;
  counters_.failures_in_a_row = 0;
  last_good_step_ns_ = clock_->NowNs();
  has_good_step_ = true;
  step_us_[step_samples_ % kStepSamples] =
      static_cast<uint32_t>(std::clamp<int64_t>(step_us, 0, std::numeric_limits<uint32_t>::max()));
  ++step_samples_;
}

void Health::NoteGoodCanary() {
  const std::lock_guard lock(mutex_);
  counters_.failures_in_a_row = 0;
  last_good_step_ns_ = clock_->NowNs();
  has_good_step_ = true;
}

bool Health::IsOlderThan(int64_t age_ms) const {
  const std::lock_guard lock(mutex_);
  return !has_good_step_ || clock_->NowNs() - last_good_step_ns_ >= age_ms * 1'000'000;
}

std::vector<uint32_t> Health::SortedStepTimes() const {
  std::vector<uint32_t> sorted;
  {
    const std::lock_guard lock(mutex_);
    sorted.assign(step_us_.begin(), step_us_.begin() + std::min(step_samples_, kStepSamples));
  }
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

void Health::NoteInsert() {
  const std::lock_guard lock(mutex_);
  ++counters_.inserts;
}

int Health::NoteFailure(bool is_step, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (is_step) {
    ++counters_.steps;
    ++counters_.failed_steps;
  }
  counters_.last_error = reason.substr(0, 64);
  return static_cast<int>(++counters_.failures_in_a_row);
}

void Health::NoteReset() {
  const std::lock_guard lock(mutex_);
  ++counters_.resets;
}

void Health::SetUse(int sessions, int open_slots) {
  const std::lock_guard lock(mutex_);
  counters_.sessions = static_cast<uint32_t>(sessions);
  counters_.open_slots = static_cast<uint32_t>(open_slots);
}

}  // namespace tp2::server
