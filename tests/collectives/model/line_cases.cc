// The line protocol under the model checker.
#include "tests/collectives/model/relacy_run.h"

namespace tp2::coll::model {
namespace {

using L = LineProtocol;

const Case kCases[] = {
    {"line/pair", kHolds, kMany, kPair<L>},
    {"line/blocks-2-1-2", kHolds, kMany, kBlocks<L>},
    {"line/pair-exhaustive", kHolds, 0, kRunAll<L, Setup{}, Sums<1, 1, 1, 1>>},
    {"line/block-without-items", kHolds, kFew, kBlocks<L, M::kNone, Sums<1, 2, 2, 2>>},
    {"line/constant-blocks-of-own-epoch-need-no-boundary", kHolds, kFew,
     kBlocks<L, M::kBlockEpochNoBoundary, Sums<2, 2, 2, 2>>},
    {"line/keeps-storing-but-does-not-close", kHolds, kMany, kLate<L, M::kKeepsStoring, Step<3>>},
    {"line/two-threads-per-block", kHolds, kFew, kRun<L, Setup{.threads = 2}, Sums<2, 1, 1, 1>>},
    {"line/four-ranks", kHolds, kFew, kRun<L, Setup{.ranks = 4}, Sums<1, 1, 1, 1>>},
    {"line/uneven-blocks", kHolds, kFew, kBlocks<L, M::kUnevenBlocks, Sums<2, 2, 2, 2>>},
    {"line/slot-first-used-late", kHolds, kFew, kPair<L, M::kNone, SlotFirstUsedLate>},
    {"line/step-with-timeouts", kHolds, kMany, kLate<L, M::kNone, Step<2>>},
    {"line/step-with-timeouts-two-blocks", kHolds, kFew,
     kRun<L, Setup{.blocks = 2, .has_timeouts = true}, Step<1>>},
    {"line/step-with-timeouts-four-ranks", kHolds, kFew,
     kRun<L, Setup{.ranks = 4, .has_timeouts = true}, Step<1>>},
    {"line/best-two", kHolds, kMany, kPair<L, M::kNone, BestTwo>},
    {"line/bad-id", kHolds, kMany, kPair<L, M::kNone, BadId<true>>},
    {"line/lost-peer", kHolds, kFew, kBlocks<L, M::kNone, LostPeer>},
    {"line/cancel", kHolds, kFew, kBlocks<L, M::kNone, Cancel>},
    {"line/late-store-after-reset", kHolds, kMany, kPair<L, M::kNone, LateStore>},
    // Mutants.
    {"line/single-buffer", kHang | kWrong, kMany, kPair<L, M::kSingleBuffer>},
    {"line/torn-line", kWrong, kMany, kPair<L, M::kTornLine>},
    {"line/torn-line-of-a-record", kWrong, kMany, kPair<L, M::kTornLine, BestTwo>},
    {"line/no-boundary", kHang | kWrong, kMany, kBlocks<L, M::kNoBoundary>},
    {"line/block-epoch", kHang | kWrong, kMany, kBlocks<L, M::kBlockEpoch>},
    {"line/block-epoch-no-boundary", kHang | kWrong, kMany, kBlocks<L, M::kBlockEpochNoBoundary>},
    {"line/frozen-epoch", kHang | kWrong, kMany, kPair<L, M::kFrozenEpoch>},
    {"line/early-epoch", kHang | kWrong, kMany, kBlocks<L, M::kEarlyEpoch>},
    {"line/tags-wrap", kWrong, kMany, kPair<L, M::kTagsWrap, SlotFirstUsedLate>},
    {"line/no-close", kWrong, kMany, kLate<L, M::kNoClose, Step<2>>},
    {"line/closes-anyway", kWrong, kMany, kLate<L, M::kClosesAnyway, Step<2>>},
    {"line/blind-wait", kHang, kMany, kBlocks<L, M::kBlindWait, LostPeer>},
    {"line/blind-wait-cancel", kHang, kMany, kBlocks<L, M::kBlindWait, Cancel>},
    {"line/no-generation", kWrong, kMany, kPair<L, M::kNoGeneration, LateStore>},
};

}  // namespace

std::span<const Case> LineCases() { return kCases; }

}  // namespace tp2::coll::model
