#include "libcore/server/statistics.h"

#include <chrono>
#include <utility>

namespace tp2::server {

Counts Statistics::Snapshot() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void Statistics::NoteFrameIn(size_t frame_bytes) {
  const std::lock_guard lock(mutex_);
  counts_.bytes_in += frame_bytes;
}

void Statistics::NoteReply(contract::Code code, size_t frame_bytes) {
  const std::lock_guard lock(mutex_);
  ++counts_.replies[code];
  counts_.bytes_out += frame_bytes;
}

void Statistics::NoteAccepted() {
  const std::lock_guard lock(mutex_);
  ++counts_.accepted_connections;
}

void Statistics::NoteRefused(contract::Code code) {
  const std::lock_guard lock(mutex_);
  ++counts_.refused_connections[code];
}

void Statistics::NoteClosed(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  ++counts_.closes[reason];
}

void Statistics::NoteFeedback(int drafted, int accepted) {
  const std::lock_guard lock(mutex_);
  if (accepted > drafted || drafted == 0) {
    ++counts_.impossible_feedback;
    return;
  }
  for (int i = 0; i < drafted; ++i) {
    ++counts_.judged_drafts[i];
    if (i < accepted) ++counts_.accepted_drafts[i];
  }
}

void Statistics::NoteCanary() {
  const std::lock_guard lock(mutex_);
  ++counts_.canaries;
}

void Statistics::NoteError(const std::string& text) {
  const int64_t wall_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
  const std::lock_guard lock(mutex_);
  counts_.errors.push_back({.wall_ms = wall_ms, .text = text});
  if (counts_.errors.size() > kMaxErrors) counts_.errors.pop_front();
}

void Statistics::SetSlots(std::vector<contract::SlotInfo> slots) {
  const std::lock_guard lock(mutex_);
  counts_.slots = std::move(slots);
}

}  // namespace tp2::server
