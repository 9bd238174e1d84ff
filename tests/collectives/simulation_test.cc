// Whole STEPs with their host latch on a simulated machine, thousands of them, by seed: delays,
// late and lost partners, lost stores, cancels, bad ids, exhausted epochs, resets. Whatever
// happens: no operation that succeeded has a wrong value, a STEP that one rank calls good was
// refused by none, every failure is known on every rank within the deadline, and after it the pair
// either works again or is poisoned.
#include "tests/collectives/simulation.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "libcore/collectives/operations.h"
#include "libcore/collectives/pair_latch.h"
#include "libcore/collectives/state_layout.h"

namespace tp2::coll {
namespace {

constexpr uint64_t kTimeoutNs = 100'000;
constexpr int64_t kIdleTimeoutMs = 1;  // ten deadlines
constexpr int64_t kMaxWords = 40;

enum class Fault {
  kNone,
  kLatePartner,  // by less than the deadline
  kLostPartner,  // launched too late to matter
  kHungPartner,  // a block that never ends
  kLostStore,
  kCancel,
  kBadId,  // on rank 1 only
  kEpochLimit,
};

struct Plan {
  ProtocolKind protocol = ProtocolKind::kLine;
  int rank_count = 2;
  uint64_t seed = 0;
  uint32_t max_epoch = kMaxEpoch;  // where the ranks themselves stop
};

// A pair, or four, with its latch. Each Step() is launched, awaited and judged as a controller
// would do it.
class Machine {
 public:
  Machine(const Plan& plan, const LatchOptions& latch_options)
      : plan_(plan),
        size_{.protocol = plan.protocol, .rank_count = plan.rank_count, .max_words = kMaxWords},
        simulation_(plan.seed),
        states_(size_),
        ranks_(plan.rank_count),
        latch_(latch_options, Hooks()) {
    for (int rank = 0; rank < plan.rank_count; ++rank) tokens_.push_back({rank * 9, rank * 9 + 9});
    for (int rank = 0; rank < plan.rank_count; ++rank) {
      views_.push_back(MakeRankView({.size = size_,
                                     .states = states_.pointers(),
                                     .tokens = tokens_,
                                     .timeout_ns = kTimeoutNs,
                                     .max_epoch = plan.max_epoch},
                                    rank));
    }
    Rng& rng = simulation_.rng();
    for (int rank = 0; rank < plan.rank_count; ++rank) {
      ranks_[rank].view = &views_[rank];
      ranks_[rank].clock_offset_ns = rng.Below(1'000'000'000);
      ranks_[rank].clock_rate = 0.999 + 0.002 * static_cast<double>(rng.Below(1000)) / 1000;
    }
  }

  // A STEP of random operations with `fault` in it. What the latch said, or nothing when it refused
  // to launch.
  std::optional<absl::Status> Step(Fault fault);

  PairLatch& latch() { return latch_; }
  uint32_t error(int rank) const { return OwnHeader(views_[rank])->status.error; }
  uint64_t latest_step_ns() const { return latest_step_ns_; }
  int64_t resets() const { return resets_; }

 private:
  struct Operation {
    bool is_exchange;
    int count;
    int blocks;
  };
  // One rank's stream: its blocks meet after every operation.
  struct Stream {
    int finished = 0;
    bool has_refused = false;
    bool is_closed = false;
  };

  LatchHooks Hooks();
  void Inject(Fault fault, std::vector<uint64_t>& start_ns);
  void RunBlock(int rank, int block, Fault fault);
  template <class Protocol>
  bool RunOne(SimulatedSys& sys, int rank, int index, Fault fault);
  // The best two of a rank: now two of its tokens, now only one.
  TopTwo BestOf(int rank, int operation, int64_t i) const {
    const float score = ValueOf(rank, operation, i);
    if (i % 2 == 0) return {{score, rank * 9}, kNoScore};
    return {{score, rank * 9}, {score - 1, rank * 9 + 8}};
  }
  float ValueOf(int rank, int operation, int64_t i) const {
    return static_cast<float>(1 + (rank * rank * 31 + step_ * 17 + operation * 5 + i) % 97) / 4;
  }

  Plan plan_;
  StateSize size_;
  Simulation simulation_;
  HostStates states_;
  std::vector<TokenRange> tokens_;
  std::vector<RankView> views_;
  std::vector<SimulatedRank> ranks_;
  PairLatch latch_;
  int step_ = 0;
  int block_count_ = 1;
  std::vector<Operation> operations_;
  std::vector<Stream> streams_;
  uint64_t latest_step_ns_ = 0;
  int64_t resets_ = 0;
};

LatchHooks Machine::Hooks() {
  return {.wait_idle =
              [this](int64_t timeout_ms) {
                const uint64_t deadline_ns =
                    simulation_.now_ns() + static_cast<uint64_t>(timeout_ms) * 1'000'000;
                if (simulation_.RunUntil(deadline_ns)) return absl::OkStatus();
                simulation_.Abandon();
                return absl::DeadlineExceededError("a rank did not become idle");
              },
          .read_errors =
              [this](std::vector<uint32_t>& errors) {
                for (size_t rank = 0; rank < views_.size(); ++rank) {
                  errors.push_back(error(static_cast<int>(rank)));
                }
                return absl::OkStatus();
              },
          .clear_states =
              [this] {
                states_.Reset();
                ++resets_;
                return absl::OkStatus();
              }};
}

template <class Protocol>
bool Machine::RunOne(SimulatedSys& sys, int rank, int index, Fault fault) {
  const Operation& operation = operations_[index];
  if (!operation.is_exchange) {
    return AllReduce<Protocol>(
        sys, views_[rank], operation.count, [&](int64_t i) { return ValueOf(rank, index, i); },
        [&](int64_t i, float sum) {
          float expected = ValueOf(0, index, i);
          for (int other = 1; other < plan_.rank_count; ++other) {
            expected += ValueOf(other, index, i);
          }
          ASSERT_EQ(sum, expected) << "seed " << plan_.seed;
        });
  }
  return Exchange<Protocol, BestTwoRecord>(
      sys, views_[rank], operation.count,
      [&](int64_t i) {
        TopTwo best = BestOf(rank, index, i);
        if (fault == Fault::kBadId && rank == 0) best.first.token = 9;
        return best;
      },
      [&](int64_t i, const TopTwo& best) {
        TopTwo expected = BestOf(0, index, i);
        for (int other = 1; other < plan_.rank_count; ++other) {
          expected = Merge(expected, BestOf(other, index, i));
        }
        ASSERT_EQ(best.first.score, expected.first.score) << "seed " << plan_.seed;
        if (fault == Fault::kBadId) return;  // rank 0 joins its own bad one
        ASSERT_EQ(best.first.token, expected.first.token) << "seed " << plan_.seed;
        ASSERT_EQ(best.second.score, expected.second.score) << "seed " << plan_.seed;
        ASSERT_EQ(best.second.token, expected.second.token) << "seed " << plan_.seed;
      });
}

void Machine::RunBlock(int rank, int block, Fault fault) {
  Stream& stream = streams_[rank];
  WithProtocol(plan_.protocol, [&]<class Protocol> {
    for (int index = 0; index < static_cast<int>(operations_.size()); ++index) {
      const int blocks = operations_[index].blocks;
      if (block < blocks) {
        simulation_.Sleep(simulation_.rng().Below(400));  // blocks do not start together
        if (fault == Fault::kHungPartner && rank == 1 && index == 1) simulation_.Hang();
        SimulatedSys sys(simulation_, ranks_[rank], block, blocks);
        if (!RunOne<Protocol>(sys, rank, index, fault)) stream.has_refused = true;
      }
      ++stream.finished;
      while (stream.finished < (index + 1) * block_count_) simulation_.Yield();
    }
    if (block != 0) return;
    SimulatedSys sys(simulation_, ranks_[rank], 0, 1);
    stream.is_closed = CloseStep<Protocol>(sys, views_[rank]);
  });
}

void Machine::Inject(Fault fault, std::vector<uint64_t>& start_ns) {
  Rng& rng = simulation_.rng();
  for (SimulatedRank& rank : ranks_) rank.lost_store = -1;
  const int victim = 1 + static_cast<int>(rng.Below(plan_.rank_count - 1));
  if (fault == Fault::kLatePartner) start_ns[victim] += kTimeoutNs / 2;
  if (fault == Fault::kLostPartner) start_ns[victim] += 3 * kTimeoutNs;
  if (fault == Fault::kLostStore) {
    // One of the three that the shortest STEP has: a sum's line, an exchange's, the close.
    ranks_[victim].lost_store = ranks_[victim].announcements + static_cast<int64_t>(rng.Below(3));
  }
  if (fault == Fault::kCancel) {
    // One partner is late, so that the others are parked when the host's two copies arrive.
    start_ns[victim] += kTimeoutNs / 2;
    for (const RankView& view : views_) {
      simulation_.At(simulation_.now_ns() + rng.Below(kTimeoutNs / 3),
                     [&view] { OwnHeader(view)->status.cancel = 1; });
    }
  }
}

std::optional<absl::Status> Machine::Step(Fault fault) {
  Rng& rng = simulation_.rng();
  ++step_;
  block_count_ = 1 + static_cast<int>(rng.Below(3));
  operations_.clear();
  const int count = 2 + static_cast<int>(rng.Below(4));
  for (int index = 0; index < count; ++index) {
    const bool is_exchange = index % 2 == 1;
    operations_.push_back({.is_exchange = is_exchange,
                           .count = 1 + static_cast<int>(rng.Below(is_exchange ? 4 : kMaxWords)),
                           .blocks = 1 + static_cast<int>(rng.Below(block_count_))});
  }
  if (!latch_.BeforeLaunch(count + 1).ok()) return std::nullopt;
  streams_.assign(plan_.rank_count, {});
  std::vector<uint64_t> start_ns;
  for (int rank = 0; rank < plan_.rank_count; ++rank) start_ns.push_back(rng.Below(3000));
  Inject(fault, start_ns);
  for (int rank = 0; rank < plan_.rank_count; ++rank) {
    for (int block = 0; block < block_count_; ++block) {
      simulation_.Spawn(start_ns[rank],
                        [this, rank, block, fault] { RunBlock(rank, block, fault); });
    }
  }
  const uint64_t began_ns = simulation_.now_ns();
  const absl::Status status = latch_.CheckStep();
  latest_step_ns_ = simulation_.now_ns() - began_ns;
  if (latch_.is_poisoned()) return status;
  for (int rank = 0; rank < plan_.rank_count; ++rank) {
    for (int other = 0; other < plan_.rank_count; ++other) {
      EXPECT_FALSE(streams_[rank].is_closed && streams_[other].has_refused)
          << "seed " << plan_.seed << " step " << step_ << " ranks " << rank << " " << other;
    }
    EXPECT_TRUE(!status.ok() || streams_[rank].is_closed) << "seed " << plan_.seed;
  }
  return status;
}

class SimulatedPair : public ::testing::TestWithParam<Plan> {
 protected:
  // The whole life of a machine with `fault` in its third STEP, for many seeds.
  template <class Judge>
  void ForSeeds(int seeds, Fault fault, Judge judge, LatchOptions options = Options()) {
    for (int seed = 0; seed < seeds && !HasFailure(); ++seed) {
      Plan plan = GetParam();
      plan.seed = static_cast<uint64_t>(seed) * 1000 + static_cast<uint64_t>(fault);
      SCOPED_TRACE("seed " + std::to_string(plan.seed));
      Machine machine(plan, options);
      for (int step = 0; step < 2; ++step) {
        const auto status = machine.Step(Fault::kNone);
        ASSERT_TRUE(status.has_value() && status->ok()) << *status;
      }
      judge(machine, machine.Step(fault));
    }
  }
  static LatchOptions Options() { return {.idle_timeout_ms = kIdleTimeoutMs}; }

  // Every rank knows in the same STEP, in time, only by bits of `allowed`; a reset heals.
  void ExpectFailedAndHealed(Machine& machine, const std::optional<absl::Status>& status,
                             uint32_t allowed, uint64_t limit_ns) {
    ASSERT_TRUE(status.has_value());
    EXPECT_FALSE(status->ok());
    for (int rank = 0; rank < GetParam().rank_count; ++rank) {
      EXPECT_NE(machine.error(rank), 0u) << rank;
      EXPECT_EQ(machine.error(rank) & ~allowed, 0u) << rank;
    }
    EXPECT_LE(machine.latest_step_ns(), limit_ns);
    EXPECT_FALSE(machine.Step(Fault::kNone).has_value()) << "launched without a reset";
    ASSERT_TRUE(machine.latch().Reset().ok());
    for (int step = 0; step < 2; ++step) {
      const auto after = machine.Step(Fault::kNone);
      ASSERT_TRUE(after.has_value() && after->ok()) << *after;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Protocols, SimulatedPair,
                         ::testing::Values(Plan{ProtocolKind::kLine, 2},
                                           Plan{ProtocolKind::kLine, 4},
                                           Plan{ProtocolKind::kAck, 2},
                                           Plan{ProtocolKind::kAck, 4}),
                         [](const auto& test) {
                           return std::string(ProtocolName(test.param.protocol)) +
                                  std::to_string(test.param.rank_count) + "Ranks";
                         });

// Of a STEP's ordinary work, every rank's start included.
constexpr uint64_t kWorkNs = 60'000;

TEST_P(SimulatedPair, DelaysAndOvertakingStoresChangeNothing) {
  ForSeeds(150, Fault::kNone, [](Machine& machine, const std::optional<absl::Status>& status) {
    EXPECT_TRUE(status.has_value() && status->ok());
    EXPECT_LE(machine.latest_step_ns(), kWorkNs);
  });
}

TEST_P(SimulatedPair, LatePartnerIsWaitedFor) {
  ForSeeds(30, Fault::kLatePartner, [](Machine&, const std::optional<absl::Status>& status) {
    EXPECT_TRUE(status.has_value() && status->ok());
  });
}

TEST_P(SimulatedPair, LostPartnerEndsTheStepOfAllWithinTheDeadline) {
  ForSeeds(30, Fault::kLostPartner,
           [this](Machine& machine, const std::optional<absl::Status>& status) {
             // It does come in the end, and refuses at once.
             ExpectFailedAndHealed(machine, status, kLocalTimeout | kPeerTimeout,
                                   3 * kTimeoutNs + kWorkNs);
           });
}

TEST_P(SimulatedPair, LostStoreEndsTheStepOfAllWithinTheDeadline) {
  ForSeeds(30, Fault::kLostStore,
           [this](Machine& machine, const std::optional<absl::Status>& status) {
             ExpectFailedAndHealed(machine, status, kLocalTimeout | kPeerTimeout,
                                   kTimeoutNs * 11 / 10 + kWorkNs);
           });
}

TEST_P(SimulatedPair, CancelEndsParkedWaitsOfAllRanksLongBeforeTheDeadline) {
  ForSeeds(40, Fault::kCancel, [this](Machine& machine, const std::optional<absl::Status>& status) {
    ExpectFailedAndHealed(machine, status, kCancelled, kTimeoutNs / 2 + kWorkNs);
    EXPECT_EQ(status->code(), absl::StatusCode::kCancelled);
  });
}

TEST_P(SimulatedPair, BadIdOnRankOneOnlyIsKnownToRankZeroInTheSameStep) {
  ForSeeds(40, Fault::kBadId, [this](Machine& machine, const std::optional<absl::Status>& status) {
    ExpectFailedAndHealed(machine, status, kInvalidId, kWorkNs);
  });
}

TEST_P(SimulatedPair, HungPartnerPoisonsThePairAndNothingClearsThat) {
  ForSeeds(20, Fault::kHungPartner,
           [](Machine& machine, const std::optional<absl::Status>& status) {
             ASSERT_TRUE(status.has_value());
             EXPECT_EQ(status->code(), absl::StatusCode::kDeadlineExceeded);
             EXPECT_TRUE(machine.latch().is_poisoned());
             EXPECT_EQ(machine.latch().Reset().code(), absl::StatusCode::kFailedPrecondition);
             EXPECT_EQ(machine.latch().CheckStep().code(), absl::StatusCode::kFailedPrecondition);
             EXPECT_FALSE(machine.Step(Fault::kNone).has_value());
             EXPECT_EQ(machine.resets(), 0);
           });
}

// The latch knows nothing of this limit: the ranks themselves must stop there.
TEST_P(SimulatedPair, EpochLimitFailsClosedOnEveryRank) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Plan plan = GetParam();
    plan.seed = seed;
    plan.max_epoch = 16;
    SCOPED_TRACE(seed);
    Machine machine(plan, Options());
    auto status = machine.Step(Fault::kNone);
    for (int step = 0; step < 8 && status->ok(); ++step) status = machine.Step(Fault::kNone);
    ExpectFailedAndHealed(machine, status, kEpochExhausted, kWorkNs);
  }
}

TEST_P(SimulatedPair, ProactiveResetsKeepALongLifeFromEverReachingTheLimit) {
  Plan plan = GetParam();
  plan.seed = 5;
  plan.max_epoch = 20;
  Machine machine(plan, {.idle_timeout_ms = kIdleTimeoutMs, .max_epoch = 20, .reset_after = 16});
  for (int step = 0; step < 120; ++step) {
    const auto status = machine.Step(Fault::kNone);
    ASSERT_TRUE(status.has_value() && status->ok()) << *status;
  }
  EXPECT_GE(machine.resets(), 20);  // more than there are generations
}

}  // namespace
}  // namespace tp2::coll
