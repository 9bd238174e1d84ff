// The specification's protocol under the model checker.
#include "tests/collectives/model/relacy_run.h"

namespace tp2::coll::model {
namespace {

using A = AckProtocol;

// The specification's order to the letter: a block acknowledges whatever it received, refused or
// not. A copy of AckProtocol::Finish without its first condition, because the product acknowledges
// only what it accepts; with mirrored errors stored first both are safe, with late ones only the
// product's.
struct AckAlways : AckProtocol {
  template <ProtocolSys Sys>
  static bool Finish(Sys& sys, const RankView& view, const Operation& operation, bool has_all) {
    bool is_done = sys.BlockAll(has_all);
    if (sys.thread() == 0) {
      for (int distance = 1; distance < view.rank_count; ++distance) {
        const int peer = PeerAt(view, distance);
        sys.StoreRelease(Ack(view, peer, view.rank, sys.block()), operation.tag);
      }
      for (int distance = 1; is_done && distance < view.rank_count; ++distance) {
        const int peer = PeerAt(view, distance);
        is_done = WaitUntil(sys, view, operation, [&] {
          const bool is_here =
              sys.LoadAcquire(Ack(view, view.rank, peer, sys.block())) == operation.tag;
          return is_here ? Look::kTaken : Look::kNothing;
        });
      }
      is_done = is_done && sys.LoadStatus(OwnHeader(view)).error == 0;
    }
    return sys.BlockAll(is_done);
  }
};

const Case kCases[] = {
    {"ack/pair", kHolds, kMany, kPair<A>},
    {"ack/single-buffer", kHolds, kMany, kPair<A, M::kSingleBuffer>},
    {"ack/pair-exhaustive", kHolds, 0, kRunAll<A, Setup{}, Sums<1, 1, 1>>},
    {"ack/blocks-2-1-2", kHolds, kFew, kBlocks<A>},
    // What breaks lines does not break blocks that wait for the consumption of all they sent.
    {"ack/block-epoch", kHolds, kFew, kBlocks<A, M::kBlockEpoch>},
    {"ack/two-threads-per-block", kHolds, kFew, kRun<A, Setup{.threads = 2}, Sums<2, 1, 1, 1>>},
    {"ack/four-ranks", kHolds, kFew, kRun<A, Setup{.ranks = 4}, Sums<1, 1, 1>>},
    {"ack/step-with-timeouts", kHolds, kMany, kLate<A, M::kNone, Step<2>>},
    {"ack/best-two", kHolds, kMany, kPair<A, M::kNone, BestTwo>},
    {"ack/bad-id", kHolds, kMany, kPair<A, M::kNone, BadId<true>>},
    {"ack/bad-id-in-the-same-operation", kHolds, kMany, kPair<A, M::kNone, BadId<false>>},
    {"ack/bad-id-acknowledged", kHolds, kMany, kPair<AckAlways, M::kNone, BadId<false>>},
    {"ack/lost-peer", kHolds, kFew, kBlocks<A, M::kNone, LostPeer>},
    {"ack/cancel", kHolds, kFew, kBlocks<A, M::kNone, Cancel>},
    {"ack/late-store-after-reset", kHolds, kMany, kPair<A, M::kNone, LateStore>},
    // Mutants.
    {"ack/no-ack", kHang | kRace, kMany, kPair<A, M::kAckIgnored>},
    {"ack/single-buffer-no-ack", kRace | kHang, kMany, kPair<A, M::kAckIgnoredSingleBuffer>},
    {"ack/single-buffer-relaxed-ack", kRace, kMany, kPair<A, M::kRelaxedAckSingleBuffer>},
    {"ack/relaxed-flag-store", kRace, kMany, kPair<A, M::kRelaxedFlagStore>},
    {"ack/relaxed-flag-load", kRace, kMany, kPair<A, M::kRelaxedFlagLoad>},
    {"ack/no-boundary", kRace | kHang | kWrong, kMany, kBlocks<A, M::kNoBoundary>},
    {"ack/frozen-epoch", kRace | kHang | kWrong, kMany, kPair<A, M::kFrozenEpoch>},
    {"ack/early-epoch", kHang | kWrong, kMany, kBlocks<A, M::kEarlyEpoch>},
    {"ack/uneven-blocks", kRace | kHang, kMany, kBlocks<A, M::kUnevenBlocks, Sums<2, 2, 2, 2>>},
    {"ack/no-block-barrier", kRace | kWrong, kMany,
     kRun<A, Setup{.threads = 2, .mutant = M::kNoBlockBarrier}, Sums<2, 1, 1, 1>>},
    {"ack/keeps-storing", kRace | kWrong, kMany, kLate<A, M::kKeepsStoring, Step<3>>},
    {"ack/late-mirror", kWrong, kMany, kPair<AckAlways, M::kLateMirror, BadId<false>>},
    {"ack/blind-wait", kHang, kMany, kBlocks<A, M::kBlindWait, LostPeer>},
    {"ack/no-generation", kRace | kWrong, kMany, kPair<A, M::kNoGeneration, LateStore>},
};

}  // namespace

std::span<const Case> AckCases() { return kCases; }

}  // namespace tp2::coll::model
