#include "libcore/collectives/state_layout.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace tp2::coll {
namespace {

TEST(StateLayout, SizesAreTheSpecificationsAtItsCapacity) {
  EXPECT_EQ(StateBytes({.protocol = ProtocolKind::kAck, .max_words = 163'840}), 1'314'816);
  EXPECT_EQ(StateBytes({.protocol = ProtocolKind::kLine, .max_words = 163'840}), 1'751'744);
}

TEST(StateLayout, EverySourceHasAPartOfItsOwnForEachParity) {
  for (const ProtocolKind kind : {ProtocolKind::kLine, ProtocolKind::kAck}) {
    const StateSize size = {.protocol = kind, .rank_count = 4, .max_words = 1000};
    EXPECT_EQ(StateBytes(size) - kControlBytes, 2 * 3 * ItemCapacity(size) * 16);
    uint8_t* states[4] = {};
    RankView view = MakeRankView({.size = size, .states = states, .tokens = {}}, 0);
    std::set<int64_t> parts;
    for (int source = 0; source < 4; ++source) {
      if (source == 2) continue;
      for (const uint32_t epoch : {6u, 7u}) {
        const Operation operation = {.epoch = epoch};
        parts.insert(InboxIndex(view, operation, 2, source, 0));
        EXPECT_EQ(InboxIndex(view, operation, 2, source, 5),
                  InboxIndex(view, operation, 2, source, 0) + 5);
      }
    }
    std::set<int64_t> expected;
    for (int part = 0; part < 6; ++part) expected.insert(part * ItemCapacity(size));
    EXPECT_EQ(parts, expected);
  }
}

TEST(StateLayout, RankMayOwnAsManyTokensAsItsOffsetsReachAndNoMore) {
  const TokenRange largest = {1000, 1000 + kMaxRankTokens};
  EXPECT_TRUE(CheckTokenRanges({}).ok());
  EXPECT_TRUE(CheckTokenRanges(std::vector<TokenRange>{{0, 1000}, largest}).ok());
  const absl::Status refused =
      CheckTokenRanges(std::vector<TokenRange>{{0, 1000}, {1000, largest.end + 1}});
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(refused.message())
                .find("vocabulary part of rank 1: expected at most 65534 "
                      "tokens of a rank, got 65535"),
            0u)
      << refused;
  EXPECT_FALSE(CheckTokenRanges(std::vector<TokenRange>{{9, 0}, {9, 18}}).ok());
}

TEST(StateLayout, ErrorAndEpochWordsLieApartFromTheArrivalCounter) {
  EXPECT_EQ(sizeof(Header), 256u);
  EXPECT_EQ(offsetof(Header, status), 0u);
  EXPECT_EQ(offsetof(Header, arrivals), 128u);
  EXPECT_EQ(sizeof(AckProtocol::Control), static_cast<size_t>(kControlBytes));
}

TEST(StateLayout, ProtocolsAreFoundByName) {
  EXPECT_EQ(FindProtocol("line"), ProtocolKind::kLine);
  EXPECT_EQ(FindProtocol("ack"), ProtocolKind::kAck);
  EXPECT_EQ(FindProtocol("nccl"), std::nullopt);
}

}  // namespace
}  // namespace tp2::coll
