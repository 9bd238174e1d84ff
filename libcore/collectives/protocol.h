// The collective protocol of one rank: tagged 16-byte lines pushed into the peer's inbox, epochs
// with a parity double buffer, bounded waits, error bits, one closing exchange per STEP. Host and
// device run this file; memory, time and waiting come from the policy Sys.
//
// Why no acknowledgment is needed: a rank stores parity p of epoch e + 2 only after its own epoch
// e + 1 has ended, which needed the peer's lines of e + 1, which the peer sent after it had read
// everything of e. Conditions: both ranks run the same sequence of operations, one after the other
// on one stream; epoch and parity belong to the operation, not to a part of it.
//
// Sys provides (all memory that two ranks touch goes through it):
//   void StoreLine(Line* to, const Line& line);   // payload becomes visible no later than the tag
//   Line LoadLine(const Line* from);              // payload at least as new as the tag it returns
//   uint32_t LoadAcquire(const uint32_t* word);   void StoreRelease(uint32_t* word, uint32_t
//   value); void OrRelease(uint32_t* word, uint32_t bits); uint64_t NowNs(); // only differences of
//   one rank's own clock count void Relax();                                 // one turn of a
//   waiting loop
#pragma once

#include <cstdint>

#include "libcore/math/hd.h"

namespace tp2::coll {

// Why an operation failed; the bits of a rank's error word.
inline constexpr uint32_t kLocalTimeout = 1;
inline constexpr uint32_t kPeerTimeout = 2;  // mirrored by the peer that waited too long
inline constexpr uint32_t kInvalidId = 4;    // a received token lies outside the peer's part
inline constexpr uint32_t kCancelled = 8;
inline constexpr uint32_t kEpochExhausted = 16;

inline constexpr int kLineValues = 3;

// A tag is 4 bits of generation above 28 bits of epoch. Epoch 0 is never used, so that a tag is
// never 0 and cleared memory never matches; a drained reset starts the next generation, so that
// lines from before it never match either.
inline constexpr uint32_t kEpochBits = 28;
inline constexpr uint32_t kMaxEpoch = (1u << kEpochBits) - 1;
inline constexpr uint32_t kMaxGeneration = 15;

TP2_HD inline uint32_t MakeTag(uint32_t generation, uint32_t epoch) {
  return generation << kEpochBits | epoch;
}

struct alignas(16) Line {
  uint32_t payload[kLineValues] = {};
  uint32_t tag = 0;
};

// What the peer and the host may write; the owner polls it while it waits.
struct Header {
  uint32_t error = 0;
  uint32_t cancel = 0;
};

// One rank's view of the pair. Only the owner reads and writes epoch and generation.
struct RankView {
  Header* own = nullptr;
  Header* peer = nullptr;
  const Line* inbox = nullptr;  // [2, line_capacity], written by the peer
  Line* peer_inbox = nullptr;
  int64_t line_capacity = 0;
  uint64_t timeout_ns = 0;
  uint32_t max_epoch = kMaxEpoch;
  uint32_t epoch = 0;  // of the latest operation; 0 before the first
  uint32_t generation = 0;
};

// SAFETY: the mirror is published before anything the failed rank stores later, and it stores no
// payload after an error bit until the reset.
template <class Sys>
TP2_HD void Fail(Sys& sys, RankView& rank, uint32_t own_bits, uint32_t peer_bits) {
  sys.OrRelease(&rank.own->error, own_bits);
  if (peer_bits != 0) sys.OrRelease(&rank.peer->error, peer_bits);
}

// Starts the next operation. False: an error is latched; nothing may be stored or awaited.
template <class Sys>
TP2_HD bool BeginOperation(Sys& sys, RankView& rank) {
  if (sys.LoadAcquire(&rank.own->error) != 0) return false;
  if (sys.LoadAcquire(&rank.own->cancel) != 0) {
    Fail(sys, rank, kCancelled, kCancelled);
    return false;
  }
  if (rank.epoch >= rank.max_epoch) {
    Fail(sys, rank, kEpochExhausted, kEpochExhausted);
    return false;
  }
  ++rank.epoch;
  return true;
}

TP2_HD inline int64_t SlotOf(const RankView& rank, int64_t line) {
  return (rank.epoch & 1) * rank.line_capacity + line;
}

// Stores line `index` of the current operation into the peer's inbox.
template <class Sys>
TP2_HD void Push(Sys& sys, const RankView& rank, int64_t index, const uint32_t* payload) {
  Line line;
  for (int i = 0; i < kLineValues; ++i) line.payload[i] = payload[i];
  line.tag = MakeTag(rank.generation, rank.epoch);
  sys.StoreLine(rank.peer_inbox + SlotOf(rank, index), line);
}

// Waits for line `index` of the current operation, whose waiting began at `start_ns`. False: an
// error is latched, `line` is not to be used.
template <class Sys>
TP2_HD bool Await(Sys& sys, RankView& rank, int64_t index, uint64_t start_ns, Line& line) {
  const uint32_t tag = MakeTag(rank.generation, rank.epoch);
  const Line* slot = rank.inbox + SlotOf(rank, index);
  while (true) {
    line = sys.LoadLine(slot);
    if (line.tag == tag) return true;
    if (sys.LoadAcquire(&rank.own->error) != 0) return false;
    if (sys.LoadAcquire(&rank.own->cancel) != 0) {
      Fail(sys, rank, kCancelled, kCancelled);
      return false;
    }
    if (sys.NowNs() - start_ns > rank.timeout_ns) {
      Fail(sys, rank, kLocalTimeout, kPeerTimeout);
      return false;
    }
    sys.Relax();
  }
}

// The last operation of a STEP, run even after an error: a line is sent only while the own error
// word is zero, so that receiving it proves that the peer refused nothing. True: the STEP succeeded
// on both ranks.
template <class Sys>
TP2_HD bool CloseStep(Sys& sys, RankView& rank) {
  if (!BeginOperation(sys, rank)) return false;
  const uint32_t payload[kLineValues] = {0, 0, 0};
  Push(sys, rank, 0, payload);
  Line line;
  if (!Await(sys, rank, 0, sys.NowNs(), line)) return false;
  return sys.LoadAcquire(&rank.own->error) == 0;
}

}  // namespace tp2::coll
