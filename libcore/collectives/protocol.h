// What the collective protocols share: error bits, epochs and tags, the state of a rank, the start
// of an operation, bounded waits. Host and device run this file; memory, time and the place of the
// calling thread come from the policy Sys (ProtocolSys below says what it provides).
//
// An operation is run by every thread of a rank: `block_count` blocks of `thread_count` threads on
// a card, one of one on the host. Conditions that no code here can check:
// * all ranks run the same sequence of operations with the same number of blocks and threads;
// * one operation of a rank ends, with its memory visible, before the next begins: one stream, no
//   programmatic launch. Epoch and parity therefore belong to the operation, not to a block of it.
#pragma once

#include <cstdint>

#include "libcore/math/hd.h"

namespace tp2::coll {

// Why an operation failed; the bits of a rank's error word.
inline constexpr uint32_t kLocalTimeout = 1;
inline constexpr uint32_t kPeerTimeout = 2;  // mirrored by the peer that waited too long
inline constexpr uint32_t kInvalidId = 4;    // a received candidate lies outside its rank's part
inline constexpr uint32_t kCancelled = 8;
inline constexpr uint32_t kEpochExhausted = 16;

inline constexpr int kMaxRanks = 4;
inline constexpr int kMaxBlocks = 160;  // of one operation

// A tag is 4 bits of generation above 28 bits of epoch. Epoch 0 is never published, so that a tag
// is never 0 and cleared memory never matches; a drained reset clears the state and starts the next
// generation, so that what was stored before it never matches either.
inline constexpr uint32_t kEpochBits = 28;
inline constexpr uint32_t kMaxEpoch = (1u << kEpochBits) - 1;
inline constexpr uint32_t kGenerations = 16;

TP2_HD inline uint32_t MakeTag(uint32_t generation, uint32_t epoch) {
  return generation << kEpochBits | epoch;
}

// After the last generation comes the first again: by then 15 resets have cleared and drained what
// a repeated tag could match.
TP2_HD inline uint32_t NextGeneration(uint32_t generation) {
  return (generation + 1) % kGenerations;
}

// One access on the device: the words a waiting thread looks at.
struct alignas(16) Status {
  uint32_t error = 0;       // set by any rank
  uint32_t cancel = 0;      // set by the host
  uint32_t epoch = 0;       // of the latest operation; 0 before the first; set by the owner
  uint32_t generation = 0;  // set by a reset
};

// The first bytes of a rank's state.
struct alignas(128) Header {
  Status status;
  alignas(128) uint32_t arrivals = 0;  // blocks of the current operation that know their epoch
};

// A state is kControlBytes of header and flags, then the inbox: [2 parities][rank_count - 1
// sources][item_capacity] items of the protocol. Each source has its own part, so that every item
// has one writer.
inline constexpr int64_t kControlBytes = 4096;

// The tokens a rank owns: the first and the one after the last.
struct TokenRange {
  int32_t begin = 0;
  int32_t end = 0;
};

// Of one rank: a token's place within its range has 16 bits, and two of their values are taken
// (operations.h).
inline constexpr int32_t kMaxRankTokens = 0xFFFE;

// One rank's view of all. A plain value: it is a kernel's argument, and what every operation reads
// lies together, because a card fetches arguments by the cache line.
struct RankView {
  uint8_t* states[kMaxRanks] = {};  // by rank
  int32_t item_capacity = 0;        // of one source and parity, in items of the protocol
  uint32_t max_epoch = kMaxEpoch;
  uint64_t timeout_ns = 0;       // of each wait
  TokenRange tokens[kMaxRanks];  // by rank
  int32_t rank = 0;
  int32_t rank_count = 2;
};

// The current operation, as each of its threads knows it.
struct Operation {
  uint32_t epoch = 0;
  uint32_t tag = 0;
};

// What a policy provides. All memory that two ranks or two blocks touch goes through it.
template <class S>
concept ProtocolSys = requires(S& sys, Header* header, uint32_t* word, const uint32_t* words) {
  // The calling thread's place among those of its rank.
  sys.block();
  sys.block_count();
  sys.thread();
  sys.thread_count();
  // Barrier of the block's threads, which orders their memory; whether all of them passed true.
  sys.BlockAll(true);
  // Status at one moment; error is acquired.
  sys.LoadStatus(header);
  sys.LoadAcquire(words);
  sys.StoreRelease(word, uint32_t{});
  sys.OrRelease(word, uint32_t{});
  // Adds 1 and returns the word's value before; what the block loaded earlier stays earlier.
  sys.Arrive(word);
  sys.NowNs();  // only differences of one rank's own clock count
  sys.Relax();  // one turn of a waiting loop
  sys.Fence();  // orders all of the rank's accesses before and after it, for all ranks
  // Turns of a waiting loop for each look at header and clock.
  S::kPollsPerCheck;
};

TP2_HD inline Header* HeaderOf(const RankView& view, int rank) {
  return reinterpret_cast<Header*>(view.states[rank]);
}
TP2_HD inline Header* OwnHeader(const RankView& view) { return HeaderOf(view, view.rank); }

// The `distance`-th rank after the own one: each rank stores to its peers in another order.
TP2_HD inline int PeerAt(const RankView& view, int distance) {
  const int peer = view.rank + distance;  // below 2 * rank_count: no division on a card
  return peer < view.rank_count ? peer : peer - view.rank_count;
}

// Which part of `owner`'s inbox belongs to `source`.
TP2_HD inline int SourceSlot(int owner, int source) { return source < owner ? source : source - 1; }

// Index of an item within `owner`'s inbox; MakeRankView keeps inboxes below 2^31 items.
TP2_HD inline int32_t InboxIndex(const RankView& view, const Operation& operation, int owner,
                                 int source, int32_t item) {
  const int32_t parity = static_cast<int32_t>(operation.epoch & 1);
  const int32_t part = parity * (view.rank_count - 1) + SourceSlot(owner, source);
  return part * view.item_capacity + item;
}

// body(distance) for the distances to all peers, in ascending order, until it returns false;
// whether none did. Of a fixed number of turns, so that a view whose rank and rank count are
// constants leaves no loop and no array index.
template <class Body>
TP2_HD inline bool ForPeers(const RankView& view, Body body) {
  TP2_UNROLL
  for (int distance = 1; distance < kMaxRanks; ++distance) {
    if (distance < view.rank_count && !body(distance)) return false;
  }
  return true;
}

// Latches `own_bits` here and `peer_bits` at every peer.
// SAFETY: the mirrors are published before anything the failed rank stores later, and no operation
// that begins after an error bit stores anything to a peer until the reset.
template <ProtocolSys Sys>
TP2_HD void Fail(Sys& sys, const RankView& view, uint32_t own_bits, uint32_t peer_bits) {
  sys.OrRelease(&OwnHeader(view)->status.error, own_bits);
  ForPeers(view, [&](int distance) {
    sys.OrRelease(&HeaderOf(view, PeerAt(view, distance))->status.error, peer_bits);
    return true;
  });
}

// Starts the rank's next operation; every thread of the block calls it. False, for the whole block:
// an error is latched; nothing may be stored or awaited.
template <ProtocolSys Sys>
TP2_HD bool BeginOperation(Sys& sys, const RankView& view, Operation& operation) {
  const Status status = sys.LoadStatus(OwnHeader(view));
  operation.epoch = status.epoch + 1;
  operation.tag = MakeTag(status.generation, operation.epoch);
  const bool is_cancelled = status.cancel != 0;
  if (status.error == 0 && !is_cancelled && status.epoch < view.max_epoch) {
    return sys.BlockAll(true);
  }
  if (status.error == 0) {
    const uint32_t bits = is_cancelled ? kCancelled : kEpochExhausted;
    Fail(sys, view, bits, bits);
  }
  return sys.BlockAll(false);
}

// Makes the operation's epoch the rank's latest, once all of its blocks have begun. Called by every
// thread of a block that has begun, once.
// SAFETY: a block arrives after the barrier of BeginOperation, when all of its threads know the
// epoch; the next operation reads the new one because this one ends first.
template <ProtocolSys Sys>
TP2_HD void AdvanceEpoch(Sys& sys, const RankView& view, const Operation& operation) {
  if (sys.thread() != 0) return;
  Header* own = OwnHeader(view);
  if (sys.block_count() > 1) {
    if (sys.Arrive(&own->arrivals) + 1 != static_cast<uint32_t>(sys.block_count())) return;
    sys.StoreRelease(&own->arrivals, 0);
  }
  sys.StoreRelease(&own->status.epoch, operation.epoch);
}

// What a look for something awaited found.
enum class Look { kNothing, kTaken, kRefused };

// Looks until something is found. False: an error is latched, by this wait, because the clock ran
// out, the host cancelled or what came was refused, or by whoever else; the operation is over for
// this thread.
template <ProtocolSys Sys, class Poll>
TP2_HD bool WaitUntil(Sys& sys, const RankView& view, const Operation& operation, Poll look) {
  uint64_t start_ns = 0;  // of the first look at the clock: most waits end before
  uint32_t own_bits = 0, peer_bits = 0;
  for (uint32_t turn = 1; own_bits == 0; ++turn) {
    const Look found = look();
    if (found == Look::kTaken) return true;
    if (found == Look::kRefused) {
      own_bits = peer_bits = kInvalidId;
    } else if (turn % Sys::kPollsPerCheck == 0) {
      const Status status = sys.LoadStatus(OwnHeader(view));
      if (status.error != 0) return false;
      const uint64_t now_ns = sys.NowNs();
      if (turn == Sys::kPollsPerCheck) start_ns = now_ns;
      if (now_ns - start_ns > view.timeout_ns) {
        own_bits = kLocalTimeout;
        peer_bits = kPeerTimeout;
      }
      if (status.cancel != 0) own_bits = peer_bits = kCancelled;
    }
    sys.Relax();
  }
  Fail(sys, view, own_bits, peer_bits);
  return false;
}

}  // namespace tp2::coll
