// Who owns which slot, and which request may run next: the state of the contract, without I/O, time
// or an engine. Thread-compatible; the controller thread owns it.
//
// A slot is FREE, OPEN (no rows), LIVE or NEEDS_RESYNC. Its generation is (32 random bits of the
// process) << 32 plus a counter that moves on OPEN, CLOSE and a failed resync, so that no client of
// an earlier process, session or tenant can match by chance or by memory.
//
// Sequenced requests (all but HELLO, HEALTH and PING) carry seq = 1, 2, 3, ... Every reply to a
// sequenced request, refusals included, uses its seq up and is kept for a resend; BUSY and what is
// refused before the seq check (frame, session) is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "libcore/contract/messages.h"
#include "libcore/model/slot_window.h"

namespace tp2::contract {

class SeqGate {
 public:
  // kOk: run it. kNotRun: the same bytes as the last request: send cached_reply() again.
  // kSeqConflict, kSeqOld, kSeqGap: refuse. `body_hash` is the server's own XXH3 of the body.
  Code Check(uint64_t seq, uint16_t type, uint64_t body_hash) const;

  void Remember(uint64_t seq, uint16_t type, uint64_t body_hash, std::span<const std::byte> reply);
  std::span<const std::byte> cached_reply() const { return reply_; }

 private:
  uint64_t last_seq_ = 0;
  uint16_t last_type_ = 0;
  uint64_t last_hash_ = 0;
  std::vector<std::byte> reply_;  // whole frame of the last reply
};

struct SlotRecord {
  uint64_t session = 0;  // 0: FREE
  uint64_t generation = 0;
  uint64_t closed_generation = 0;  // of the tenancy that ended last
  uint64_t tag = 0;
  bool needs_resync = false;
  SlotWindow window;

  SlotState state() const;
};

class SlotTable {
 public:
  // `boot_bits`: 32 random bits drawn at process start.
  SlotTable(int slot_count, uint32_t boot_bits);

  int slot_count() const { return static_cast<int>(slots_.size()); }
  const SlotRecord& at(int slot) const { return slots_[slot]; }

  // Which slot an OPEN gets: kOk, kNoSuchSlot (number beyond the table) or kSlotsFull (taken, none
  // free, or the session holds `session_limit` already). Changes nothing.
  Code PickForOpen(uint64_t session, uint16_t wanted, int session_limit, int* slot) const;
  // Gives the slot to the session; returns its generation.
  uint64_t Open(int slot, uint64_t session, uint64_t tag, int64_t base);

  // kNoSuchSlot (number beyond the table, free, or another session's), kNeedsResync,
  // kStaleGeneration, kOk: in this order.
  Code CheckOwner(uint64_t session, uint16_t slot, uint64_t generation) const;

  // As CheckOwner, except that NEEDS_RESYNC is no obstacle. A CLOSE of the generation that was
  // closed last is kOk with `was_closed_before`.
  Code CheckClose(uint64_t session, const CloseRequest& close, bool* was_closed_before) const;
  void Close(int slot);
  // Closes what a session holds, when its connection ends; returns how many.
  int CloseAll(uint64_t session);

  // After the engine took the rows.
  void SetWindow(int slot, const SlotWindow& window) { slots_[slot].window = window; }
  // The rows are lost: the generation moves and every use is refused until CLOSE.
  void MarkNeedsResync(int slot);

  int CountOpen() const;
  int CountOf(uint64_t session) const;
  // Low half of the generation counter: generations issued or retired so far.
  uint64_t counter() const { return generation_ & 0xFFFFFFFFu; }

 private:
  std::vector<SlotRecord> slots_;
  uint64_t generation_;
};

}  // namespace tp2::contract
