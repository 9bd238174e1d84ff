// The specification's protocol: payload pushed as plain words, one flag per block released after
// it, one acknowledgement per block after its consumption. Slower than tagged lines (two more
// fences and one more way across the link), kept to be qualified and timed beside them.
//
// The acknowledgement follows the consumer's reads and its mirrored errors, and a successful block
// waits for it: so a refusal on one rank is seen by the others in the same operation.
#pragma once

#include <cstdint>

#include "libcore/collectives/protocol.h"

namespace tp2::coll {

// Besides ProtocolSys, plain accesses to 16 aligned bytes:
//   void StoreWords(uint32_t* to, const uint32_t (&words)[4]);
//   void LoadWords(const uint32_t* from, uint32_t (&words)[4]);
struct AckProtocol {
  static constexpr const char* kName = "ack";
  static constexpr int kItemWords = 4;
  static constexpr int64_t kItemBytes = 16;

  // Behind the header, for each source and block: the tag of the latest payload, then the tag of
  // the latest payload of ours that `source` has consumed.
  struct Control {
    Header header;
    uint32_t flags[kMaxRanks - 1][kMaxBlocks];
    uint32_t acks[kMaxRanks - 1][kMaxBlocks];
  };
  static_assert(sizeof(Control) == kControlBytes);

  TP2_HD static uint32_t* Slot(const RankView& view, const Operation& operation, int owner,
                               int source, int32_t item) {
    return reinterpret_cast<uint32_t*>(view.states[owner] + kControlBytes) +
           int64_t{InboxIndex(view, operation, owner, source, item)} * kItemWords;
  }
  TP2_HD static uint32_t* Flag(const RankView& view, int owner, int source, int block) {
    return &ControlOf(view, owner)->flags[SourceSlot(owner, source)][block];
  }
  TP2_HD static uint32_t* Ack(const RankView& view, int owner, int source, int block) {
    return &ControlOf(view, owner)->acks[SourceSlot(owner, source)][block];
  }

  template <ProtocolSys Sys>
  TP2_HD static void Send(Sys& sys, const RankView& view, const Operation& operation, int32_t item,
                          const uint32_t (&words)[kItemWords]) {
    ForPeers(view, [&](int distance) {
      const int peer = PeerAt(view, distance);
      sys.StoreWords(Slot(view, operation, peer, view.rank, item), words);
      return true;
    });
  }

  // SAFETY: the release of the flag publishes the block's payload: the barrier orders the stores of
  // all of its threads before it.
  template <ProtocolSys Sys>
  TP2_HD static void Publish(Sys& sys, const RankView& view, const Operation& operation) {
    sys.BlockAll(true);
    if (sys.thread() == 0) {
      ForPeers(view, [&](int distance) {
        const int peer = PeerAt(view, distance);
        sys.StoreRelease(Flag(view, peer, view.rank, sys.block()), operation.tag);
        return true;
      });
    }
    AdvanceEpoch(sys, view, operation);
  }

  // SAFETY: the acquired flag makes the source's payload visible to its reader, the barrier to the
  // reader's block.
  template <ProtocolSys Sys>
  TP2_HD static bool AwaitBlock(Sys& sys, const RankView& view, const Operation& operation) {
    bool has_come = true;
    if (sys.thread() == 0) {
      has_come = ForPeers(view, [&](int distance) {
        const int peer = PeerAt(view, distance);
        return AwaitTag(sys, view, operation, Flag(view, view.rank, peer, sys.block()));
      });
    }
    return sys.BlockAll(has_come);
  }

  template <ProtocolSys Sys>
  TP2_HD static bool Receive(Sys& sys, const RankView& view, const Operation& operation, int source,
                             int32_t item, uint32_t (&words)[kItemWords]) {
    sys.LoadWords(Slot(view, operation, view.rank, source, item), words);
    return true;
  }

  template <ProtocolSys Sys, class Accept>
  TP2_HD static bool ReceiveIf(Sys& sys, const RankView& view, const Operation& operation,
                               int source, int32_t item, Accept accept) {
    uint32_t words[kItemWords];
    Receive(sys, view, operation, source, item, words);
    if (accept(words)) return true;
    Fail(sys, view, kInvalidId, kInvalidId);
    return false;
  }

  // A block that refused anything acknowledges nothing: its error, mirrored already, ends the
  // peers' waits. SAFETY: the barrier orders every thread's reads and mirrored errors before the
  // acknowledgement, whose acquirer may then reuse what was read and sees the errors.
  template <ProtocolSys Sys>
  TP2_HD static bool Finish(Sys& sys, const RankView& view, const Operation& operation,
                            bool has_all) {
    if (!sys.BlockAll(has_all)) return false;
    bool is_done = true;
    if (sys.thread() == 0) {
      ForPeers(view, [&](int distance) {
        const int peer = PeerAt(view, distance);
        sys.StoreRelease(Ack(view, peer, view.rank, sys.block()), operation.tag);
        return true;
      });
      is_done = ForPeers(view, [&](int distance) {
        const int peer = PeerAt(view, distance);
        return AwaitTag(sys, view, operation, Ack(view, view.rank, peer, sys.block()));
      });
      is_done = is_done && sys.LoadStatus(OwnHeader(view)).error == 0;
    }
    return sys.BlockAll(is_done);
  }

 private:
  TP2_HD static Control* ControlOf(const RankView& view, int rank) {
    return reinterpret_cast<Control*>(view.states[rank]);
  }
  template <ProtocolSys Sys>
  TP2_HD static bool AwaitTag(Sys& sys, const RankView& view, const Operation& operation,
                              const uint32_t* word) {
    return WaitUntil(sys, view, operation, [&] {
      return sys.LoadAcquire(word) == operation.tag ? Look::kTaken : Look::kNothing;
    });
  }
};

}  // namespace tp2::coll
