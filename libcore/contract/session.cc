#include "libcore/contract/session.h"

#include <algorithm>

#include "libcore/base/check.h"

namespace tp2::contract {

Code SeqGate::Check(uint64_t seq, uint16_t type, uint64_t body_hash) const {
  if (seq == last_seq_ + 1) return Code::kOk;
  if (seq > last_seq_) return Code::kSeqGap;
  if (seq < last_seq_ || seq == 0) return Code::kSeqOld;
  return type == last_type_ && body_hash == last_hash_ ? Code::kNotRun : Code::kSeqConflict;
}

void SeqGate::Remember(uint64_t seq, uint16_t type, uint64_t body_hash,
                       std::span<const std::byte> reply) {
  last_seq_ = seq;
  last_type_ = type;
  last_hash_ = body_hash;
  reply_.assign(reply.begin(), reply.end());
}

SlotState SlotRecord::state() const {
  if (session == 0) return SlotState::kFree;
  if (needs_resync) return SlotState::kNeedsResync;
  return window.is_empty() ? SlotState::kOpen : SlotState::kLive;
}

SlotTable::SlotTable(int slot_count, uint32_t boot_bits)
    : slots_(slot_count), generation_(uint64_t{boot_bits} << 32) {}

Code SlotTable::PickForOpen(uint64_t session, uint16_t wanted, int session_limit, int* slot) const {
  if (wanted != kAnySlot && wanted >= slots_.size()) return Code::kNoSuchSlot;
  if (CountOf(session) >= session_limit) return Code::kSlotsFull;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].session != 0 || (wanted != kAnySlot && wanted != i)) continue;
    *slot = static_cast<int>(i);
    return Code::kOk;
  }
  return Code::kSlotsFull;
}

uint64_t SlotTable::Open(int slot, uint64_t session, uint64_t tag, int64_t base) {
  SlotRecord& record = slots_[slot];
  TP2_CHECK(record.session == 0 && session != 0);
  record.session = session;
  record.generation = ++generation_;
  record.tag = tag;
  record.needs_resync = false;
  record.window = SlotWindow(base);
  return record.generation;
}

Code SlotTable::CheckOwner(uint64_t session, uint16_t slot, uint64_t generation) const {
  if (slot >= slots_.size() || session == 0 || slots_[slot].session != session) {
    return Code::kNoSuchSlot;
  }
  // Before the generation, which a failed resync moved: the client must learn the reason.
  if (slots_[slot].needs_resync) return Code::kNeedsResync;
  return slots_[slot].generation == generation ? Code::kOk : Code::kStaleGeneration;
}

Code SlotTable::CheckClose(uint64_t session, const CloseRequest& close,
                           bool* was_closed_before) const {
  *was_closed_before = false;
  if (close.slot >= slots_.size()) return Code::kNoSuchSlot;
  const SlotRecord& record = slots_[close.slot];
  if (record.session == session && session != 0 &&
      (record.needs_resync || record.generation == close.generation)) {
    return Code::kOk;
  }
  if (close.generation != 0 && close.generation == record.closed_generation) {
    *was_closed_before = true;
    return Code::kOk;
  }
  return record.session == session ? Code::kStaleGeneration : Code::kNoSuchSlot;
}

void SlotTable::Close(int slot) {
  const uint64_t closed = slots_[slot].generation;
  ++generation_;
  slots_[slot] = SlotRecord();
  slots_[slot].closed_generation = closed;
}

int SlotTable::CloseAll(uint64_t session) {
  int closed = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (session == 0 || slots_[i].session != session) continue;
    Close(static_cast<int>(i));
    ++closed;
  }
  return closed;
}

void SlotTable::MarkNeedsResync(int slot) {
  slots_[slot].generation = ++generation_;
  slots_[slot].needs_resync = true;
}

int SlotTable::CountOpen() const {
  return static_cast<int>(std::count_if(slots_.begin(), slots_.end(),
                                        [](const SlotRecord& slot) { return slot.session != 0; }));
}

int SlotTable::CountOf(uint64_t session) const {
  return static_cast<int>(
      std::count_if(slots_.begin(), slots_.end(),
                    [session](const SlotRecord& slot) { return slot.session == session; }));
}

}  // namespace tp2::contract
