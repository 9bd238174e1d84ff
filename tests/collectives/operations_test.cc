// The collectives among threads: two and four ranks, one and several blocks per rank, both
// protocols. Names carry "Thread": they run under the thread sanitizer too.
#include "libcore/collectives/operations.h"

#include <gtest/gtest.h>

#include <barrier>
#include <bit>
#include <climits>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "libcore/base/rng.h"
#include "libcore/collectives/host_state.h"
#include "libcore/collectives/host_sys.h"

namespace tp2::coll {
namespace {

constexpr int64_t kMaxWords = 600;

// rank_count ranks of block_count threads. A rank's threads meet after every operation, as kernels
// of one stream follow one another.
class Team {
 public:
  Team(ProtocolKind kind, int rank_count, int block_count)
      : size_{.protocol = kind, .rank_count = rank_count, .max_words = kMaxWords},
        states_(size_),
        block_count_(block_count) {
    for (int rank = 0; rank < rank_count; ++rank) {
      tokens_.push_back({rank * 50, rank * 50 + 50});
      boundaries_.push_back(std::make_unique<std::barrier<>>(block_count));
    }
    for (int rank = 0; rank < rank_count; ++rank) {
      views_.push_back(
          MakeRankView({.size = size_, .states = states_.pointers(), .tokens = tokens_}, rank));
    }
  }

  struct Member {
    HostSys sys;
    const RankView& view;
    int block;
    std::barrier<>& boundary;
  };

  // Each member on a thread of its own.
  void Run(const std::function<void(Member)>& body) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < views_.size(); ++rank) {
      for (int block = 0; block < block_count_; ++block) {
        threads.emplace_back([this, &body, rank, block] {
          body({HostSys(block, block_count_), views_[rank], block, *boundaries_[rank]});
        });
      }
    }
    for (std::thread& thread : threads) thread.join();
  }

  uint32_t error(int rank) const { return OwnHeader(views_[rank])->status.error; }
  uint32_t epoch(int rank) const { return OwnHeader(views_[rank])->status.epoch; }

 private:
  StateSize size_;
  HostStates states_;
  int block_count_;
  std::vector<TokenRange> tokens_;
  std::vector<RankView> views_;
  std::vector<std::unique_ptr<std::barrier<>>> boundaries_;
};

struct Shape {
  ProtocolKind protocol;
  int rank_count;
  int block_count;
};

class OperationsThreads : public ::testing::TestWithParam<Shape> {};

INSTANTIATE_TEST_SUITE_P(
    Teams, OperationsThreads,
    ::testing::Values(Shape{ProtocolKind::kLine, 2, 1}, Shape{ProtocolKind::kLine, 2, 2},
                      Shape{ProtocolKind::kLine, 4, 1}, Shape{ProtocolKind::kAck, 2, 1},
                      Shape{ProtocolKind::kAck, 2, 2}, Shape{ProtocolKind::kAck, 4, 1}),
    [](const auto& test) {
      return std::string(ProtocolName(test.param.protocol)) +
             std::to_string(test.param.rank_count) + "Ranks" +
             std::to_string(test.param.block_count) + "Blocks";
    });

float Value(int rank, int operation, int64_t index) {
  Rng rng(static_cast<uint64_t>(rank * 1'000'003 + operation * 1009 + index));
  return rng.Signed();
}

// What the next test could not see otherwise: with four ranks the order of additions shows.
TEST(Operations, SumsThatBeginWithTheOwnValueWouldDifferBetweenFourRanks) {
  int different = 0;
  for (int64_t i = 0; i < kMaxWords; ++i) {
    float in_order = Value(0, 0, i);
    float own_first = Value(3, 0, i);
    for (int rank = 1; rank < 4; ++rank) in_order += Value(rank, 0, i);
    for (int rank = 0; rank < 3; ++rank) own_first += Value(rank, 0, i);
    different += in_order != own_first;
  }
  EXPECT_GT(different, 0);
}

TEST_P(OperationsThreads, SumsAreThoseOfRankOrderOnEveryRank) {
  const Shape shape = GetParam();
  Team team(shape.protocol, shape.rank_count, shape.block_count);
  constexpr int kOperations = 150;
  std::vector<std::vector<float>> data(shape.rank_count, std::vector<float>(kMaxWords));
  WithProtocol(shape.protocol, [&]<class Protocol> {
    team.Run([&](Team::Member member) {
      std::vector<float>& mine = data[member.view.rank];
      for (int op = 0; op < kOperations; ++op) {
        const int64_t count = 1 + Rng(op).Below(kMaxWords);
        // In place: the first block fills, all sum, the first block checks.
        if (member.block == 0) {
          for (int64_t i = 0; i < count; ++i) mine[i] = Value(member.view.rank, op, i);
        }
        member.boundary.arrive_and_wait();
        ASSERT_TRUE(AllReduce<Protocol>(
            member.sys, member.view, count, [&](int64_t i) { return mine[i]; },
            [&](int64_t i, float sum) { mine[i] = sum; }));
        member.boundary.arrive_and_wait();
        if (member.block == 0) {
          for (int64_t i = 0; i < count; ++i) {
            float expected = Value(0, op, i);
            for (int rank = 1; rank < shape.rank_count; ++rank) expected += Value(rank, op, i);
            ASSERT_EQ(std::bit_cast<uint32_t>(mine[i]), std::bit_cast<uint32_t>(expected));
          }
        }
      }
    });
  });
  for (int rank = 0; rank < shape.rank_count; ++rank) {
    EXPECT_EQ(team.error(rank), 0u);
    EXPECT_EQ(team.epoch(rank), static_cast<uint32_t>(kOperations));
  }
}

TEST_P(OperationsThreads, StepsOfMixedOperationsCloseOnEveryRank) {
  const Shape shape = GetParam();
  Team team(shape.protocol, shape.rank_count, shape.block_count);
  WithProtocol(shape.protocol, [&]<class Protocol> {
    team.Run([&](Team::Member member) {
      const int rank = member.view.rank;
      for (int step = 0; step < 40; ++step) {
        std::vector<TopTwo> best(4);
        ASSERT_TRUE((Exchange<Protocol, BestTwoRecord>(
            member.sys, member.view, 4,
            [&](int64_t i) {
              return TopTwo{{Value(rank, step, i), rank * 50}, {-2, rank * 50 + 49}};
            },
            [&](int64_t i, const TopTwo& joined) { best[i] = joined; })));
        member.boundary.arrive_and_wait();
        Scored winner = {};
        ASSERT_TRUE((Exchange<Protocol, BestRecord>(
            member.sys, member.view, 1,
            [&](int64_t i) {
              return Scored{1, rank * 50 + 7};
            },
            [&](int64_t i, const Scored& joined) { winner = joined; })));
        if (member.block == 0) {
          EXPECT_EQ(winner.token, 7);  // a tie goes to the lower token
          for (int i = 0; i < 4; i += shape.block_count) {
            int expected = 0;
            for (int other = 1; other < shape.rank_count; ++other) {
              if (Value(other, step, i) > Value(expected, step, i)) expected = other;
            }
            EXPECT_EQ(best[i].first.token, expected * 50);
          }
        }
        member.boundary.arrive_and_wait();
        if (member.block == 0) {
          HostSys alone;
          EXPECT_TRUE(CloseStep<Protocol>(alone, member.view));
        }
        member.boundary.arrive_and_wait();
      }
    });
  });
}

// Rank 1 alone sends `bad`, the others `good`.
template <class Record>
void ExpectRefusedByAll(const Shape& shape, const typename Record::Value& good,
                        const typename Record::Value& bad) {
  Team team(shape.protocol, shape.rank_count, shape.block_count);
  std::vector<char> is_closed(shape.rank_count);
  WithProtocol(shape.protocol, [&]<class Protocol> {
    team.Run([&](Team::Member member) {
      Exchange<Protocol, Record>(
          member.sys, member.view, 1, [&](int64_t i) { return member.view.rank == 1 ? bad : good; },
          [&](int64_t i, const typename Record::Value& joined) {});
      member.boundary.arrive_and_wait();
      if (member.block == 0) {
        HostSys alone;
        is_closed[member.view.rank] = CloseStep<Protocol>(alone, member.view);
      }
    });
  });
  for (int rank = 0; rank < shape.rank_count; ++rank) {
    EXPECT_FALSE(is_closed[rank]);
    EXPECT_EQ(team.error(rank), kInvalidId);
  }
}

TEST_P(OperationsThreads, RefusedCandidateOfOneRankFailsTheStepOfAll) {
  for (const Scored bad : {Scored{1, 0}, Scored{1, -1}, Scored{__builtin_nanf(""), 57}}) {
    ExpectRefusedByAll<BestRecord>(GetParam(), kNoScore, bad);
    ExpectRefusedByAll<BestTwoRecord>(GetParam(), {kNoScore, kNoScore}, {bad, kNoScore});
    ExpectRefusedByAll<BestTwoRecord>(GetParam(), {kNoScore, kNoScore}, {{2, 58}, bad});
  }
}

// One token, a part that begins anywhere, the largest parts.
constexpr TokenRange kRanges[] = {
    {0, 1}, {100, 180}, {0, kMaxRankTokens}, {65'536, 65'536 + kMaxRankTokens}};

bool Travels(TokenRange range, const TopTwo& sent, TopTwo& received) {
  uint32_t words[BestTwoRecord::kWords];
  BestTwoRecord::ToWords(range, sent, words);
  return BestTwoRecord::FromWords(range, words, received);
}

bool AreSame(const Scored& a, const Scored& b) {
  return a.token == b.token && std::bit_cast<uint32_t>(a.score) == std::bit_cast<uint32_t>(b.score);
}

TEST(BestTwoRecord, EdgesOfARangeAndNoCandidateArriveAsSentWithTheBitsOfTheScores) {
  for (const TokenRange range : kRanges) {
    const Scored edges[] = {{-0.0f, range.begin}, {0x1p-149f, range.end - 1}, kNoScore};
    for (const Scored& first : edges) {
      for (const Scored& second : edges) {
        TopTwo received = {};
        EXPECT_TRUE(Travels(range, {first, second}, received)) << range.begin;
        EXPECT_TRUE(AreSame(received.first, first)) << range.begin << " " << first.token;
        EXPECT_TRUE(AreSame(received.second, second)) << range.begin << " " << second.token;
      }
    }
  }
}

TEST(BestTwoRecord, ForeignTokensAndScoresThatAreNoNumbersAreRefusedInEitherPlace) {
  for (const TokenRange range : kRanges) {
    const Scored good = {1, range.begin};
    std::vector<Scored> refused = {{__builtin_nanf(""), range.begin},
                                   {__builtin_nanf(""), kNoScore.token}};
    // What 16 bits would make a token, no candidate or the mark of a foreign one, too.
    for (const int32_t foreign :
         {range.begin - 1, range.end, range.begin + 0xFFFE, range.begin + 0xFFFF,
          range.begin + 0x10000, range.begin - 0x10000, -1, INT_MIN, INT_MAX - 1}) {
      refused.push_back({1, foreign});
    }
    for (const Scored& bad : refused) {
      TopTwo received = {};
      EXPECT_FALSE(Travels(range, {bad, good}, received)) << range.begin << " " << bad.token;
      EXPECT_FALSE(Travels(range, {good, bad}, received)) << range.begin << " " << bad.token;
    }
  }
}

}  // namespace
}  // namespace tp2::coll
