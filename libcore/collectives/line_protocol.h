// The default protocol: tagged 16-byte lines pushed into the peers' inboxes, parity double buffer,
// no acknowledgement.
//
// Why none is needed: a rank stores parity p of epoch e + 2 only after its own epoch e + 1 has
// ended, which needed the peer's lines of e + 1, which the peer sent after it had read everything
// of e. This holds because every operation waits for a line of every peer. What an acknowledgement
// would give besides, sight of a peer's refusal, is the closing exchange's job (operations.h).
#pragma once

#include <cstdint>

#include "libcore/collectives/protocol.h"

namespace tp2::coll {

struct alignas(16) Line {
  uint32_t payload[3] = {};
  uint32_t tag = 0;
};

// Besides ProtocolSys:
//   void StoreLine(Line* to, const Line& line);  // payload becomes visible no later than the tag
//   Line LoadLine(const Line* from);             // payload at least as new as the tag it returns
struct LineProtocol {
  static constexpr const char* kName = "line";
  static constexpr int kItemWords = 3;
  static constexpr int64_t kItemBytes = sizeof(Line);

  TP2_HD static Line* Slot(const RankView& view, const Operation& operation, int owner, int source,
                           int32_t item) {
    return reinterpret_cast<Line*>(view.states[owner] + kControlBytes) +
           InboxIndex(view, operation, owner, source, item);
  }

  // Stores an item of the current operation into every peer's inbox.
  template <ProtocolSys Sys>
  TP2_HD static void Send(Sys& sys, const RankView& view, const Operation& operation, int32_t item,
                          const uint32_t (&words)[kItemWords]) {
    const Line line = {{words[0], words[1], words[2]}, operation.tag};
    ForPeers(view, [&](int distance) {
      const int peer = PeerAt(view, distance);
      sys.StoreLine(Slot(view, operation, peer, view.rank, item), line);
      return true;
    });
  }

  // Ends the sending; every thread of the block calls it once. Nothing is left to publish.
  template <ProtocolSys Sys>
  TP2_HD static void Publish(Sys& sys, const RankView& view, const Operation& operation) {
    AdvanceEpoch(sys, view, operation);
  }

  // Begins the receiving; every thread of the block calls it once. False as WaitUntil.
  template <ProtocolSys Sys>
  TP2_HD static bool AwaitBlock(Sys& sys, const RankView& view, const Operation& operation) {
    return true;
  }

  // Takes an item of `source`. False as WaitUntil: `words` are not to be used.
  template <ProtocolSys Sys>
  TP2_HD static bool Receive(Sys& sys, const RankView& view, const Operation& operation, int source,
                             int32_t item, uint32_t (&words)[kItemWords]) {
    return ReceiveIf(sys, view, operation, source, item, [&](const auto& received) {
      TP2_UNROLL
      for (int i = 0; i < kItemWords; ++i) words[i] = received[i];
      return true;
    });
  }

  // Takes an item that accept(words), words[kItemWords], accepts; what it refuses is latched on all
  // ranks. False as WaitUntil.
  template <ProtocolSys Sys, class Accept>
  TP2_HD static bool ReceiveIf(Sys& sys, const RankView& view, const Operation& operation,
                               int source, int32_t item, Accept accept) {
    const Line* slot = Slot(view, operation, view.rank, source, item);
    return WaitUntil(sys, view, operation, [&] {
      const Line line = sys.LoadLine(slot);
      if (line.tag != operation.tag) return Look::kNothing;
      return accept(line.payload) ? Look::kTaken : Look::kRefused;
    });
  }

  // Ends the operation for the calling thread, which has `has_all` of its items; every thread of a
  // block that has begun calls it once. True: what this thread received may be used.
  template <ProtocolSys Sys>
  TP2_HD static bool Finish(Sys& sys, const RankView& view, const Operation& operation,
                            bool has_all) {
    return has_all;
  }
};

}  // namespace tp2::coll
