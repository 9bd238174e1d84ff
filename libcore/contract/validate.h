// Requests against the worker's sizes, the session's grants and the slots: which code, and for a
// STEP which entry. Pure; changes nothing. The order of checks is part of the contract, so that a
// request with several faults has one answer:
//   frame, session, seq, worker state, feature, STEP fields; then entries in order: slot,
//   generation, duplicate slot, rows, insert position, anchor position, anchor token, expected
//   length, accepted drafts, window, finite rows.
#pragma once

#include <cstdint>
#include <optional>

#include "libcore/contract/messages.h"
#include "libcore/contract/session.h"

namespace tp2::contract {

// What the worker can do; fixed for its life.
struct WorkerLimits {
  uint32_t vocab = 0;
  uint32_t hidden = 0;
  uint16_t taps = 0;
  uint16_t window_rows = 0;
  uint16_t ring_rows = 0;
  int slot_count = kSlotCount;
  int64_t max_positions = 0;
  uint64_t features = 0;
  Sha256Digest identity{};
  Sha256Digest config{};
  Sha256Digest numerics{};

  uint32_t RowBytes(uint16_t row_kind) const {
    return (row_kind == 1 ? uint32_t{taps} : 1u) * hidden * 2u;
  }
};

// What HELLO granted.
struct SessionGrant {
  uint64_t session = 0;
  uint64_t features = 0;
  uint16_t requests = 0;
  uint16_t n_out = 0;
  uint16_t slots = 0;
};

struct HelloVerdict {
  Code code = Code::kOk;
  uint32_t mismatch_field = kFieldNone;
};
// Version, impossible wishes, identity, the single fields, config, numerics.
HelloVerdict ValidateHello(const HelloRequest& hello, const WorkerLimits& worker);
SessionGrant GrantOf(const HelloRequest& hello, const WorkerLimits& worker, uint64_t session);

// Base position only; slots are SlotTable::PickForOpen's.
Code ValidateOpen(const OpenRequest& open, const WorkerLimits& worker);

// On kOk `after` is the slot's window once the rows are in.
Code ValidateInsert(const InsertMessage& insert, const WorkerLimits& worker,
                    const SessionGrant& grant, const SlotTable& slots, SlotWindow* after);

struct StepVerdict {
  Code code = Code::kOk;  // kBadEntry when an entry was refused
  int bad_entry = -1;
  Code entry_code = Code::kOk;
  std::array<SlotWindow, kMaxRequests> after;  // windows once the rows are in; on kOk only
};
StepVerdict ValidateStep(const StepMessage& step, const WorkerLimits& worker,
                         const SessionGrant& grant, const SlotTable& slots);

}  // namespace tp2::contract
