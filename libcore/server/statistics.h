// Everything the worker counts for people and scrapers beyond what HEALTH carries: replies by code,
// bytes, connections, accepted drafts, the last errors, and a copy of the slots for other threads.
// Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "libcore/contract/messages.h"

namespace tp2::server {

struct PastError {
  int64_t wall_ms = 0;  // since 1970; a label only
  std::string text;
};

struct Counts {
  std::map<contract::Code, uint64_t> replies;
  std::map<std::string, uint64_t> closes;  // reason -> connections
  uint64_t accepted_connections = 0;
  std::map<contract::Code, uint64_t> refused_connections;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  // Of blocks whose client reported: drafts at this position, and how many of them were accepted.
  std::array<uint64_t, kBlockRows> judged_drafts{};
  std::array<uint64_t, kBlockRows> accepted_drafts{};
  uint64_t impossible_feedback = 0;  // more accepted than were drafted, or no block before
  uint64_t canaries = 0;
  std::vector<contract::SlotInfo> slots;
  std::deque<PastError> errors;  // oldest first
};

class Statistics {
 public:
  static constexpr size_t kMaxErrors = 16;

  Counts Snapshot() const;

  void NoteFrameIn(size_t frame_bytes);
  void NoteReply(contract::Code code, size_t frame_bytes);
  void NoteAccepted();
  void NoteRefused(contract::Code code);
  void NoteClosed(const std::string& reason);
  // The target accepted the first `accepted` of `drafted` drafts. Counts as impossible what is.
  void NoteFeedback(int drafted, int accepted);
  void NoteCanary();
  void NoteError(const std::string& text);
  void SetSlots(std::vector<contract::SlotInfo> slots);

 private:
  mutable std::mutex mutex_;
  Counts counts_;  // guarded by mutex_
};

}  // namespace tp2::server
