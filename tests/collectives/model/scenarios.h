// What the modelled ranks do and what must hold. A scenario is run by every thread of every rank;
// a host or a late store is one more thread.
#pragma once

#include <bit>
#include <cstdint>

#include "tests/collectives/model/model_sys.h"

namespace tp2::coll::model {

// Plain memory of one execution: threads of the model run one at a time.
struct Record {
  bool has_refused[kMaxRanks] = {};  // an operation before the closing exchange
  bool is_step_ok[kMaxRanks] = {};   // what the closing exchange said
  bool has_failed_here = false;      // any operation, anywhere
};

inline float ValueOf(int rank, int operation, int64_t index) {
  return static_cast<float>(1 + 1000 * rank * rank + 100 * rank + 10 * operation + index);
}

// One all-reduce of `items` items in `block_count` blocks; what it stores must be the sum. False as
// AllReduce, or nothing to do for this block.
template <class Protocol, Setup kSetup>
bool Sum(ModelSys<kSetup>& sys, const RankView& view, int operation, int block_count, int items) {
  bool is_done = true;
  if (sys.block() < block_count) {
    sys.set_block_count(block_count);
    sys.Begin();
    is_done = AllReduce<Protocol>(
        sys, view, items * Protocol::kItemWords,
        [&](int64_t i) { return ValueOf(view.rank, operation, i); },
        [&](int64_t i, float sum) {
          float expected = ValueOf(0, operation, i);
          for (int rank = 1; rank < view.rank_count; ++rank) {
            expected += ValueOf(rank, operation, i);
          }
          RL_ASSERT(sum == expected);
        });
  }
  sys.Boundary();
  return is_done;
}

template <class Protocol, Setup kSetup>
bool Close(ModelSys<kSetup>& sys, const RankView& view) {
  bool is_ok = true;
  if (sys.block() == 0) {
    sys.set_block_count(1);
    sys.Begin(/*is_closing=*/true);
    is_ok = CloseStep<Protocol>(sys, view);
  }
  sys.Boundary();
  return is_ok;
}

// Nothing goes wrong: every operation succeeds with the right sums. kBlocks lists block counts.
template <int kItems, int... kBlocks>
struct Sums {
  static constexpr int kExtraThreads = 0;
  template <class Protocol, Setup kSetup>
  static void Member(ModelSys<kSetup>& sys, const RankView& view, Record& record) {
    int operation = 0;
    for (const int blocks : {kBlocks...}) {
      const bool is_uneven = kSetup.mutant == Mutant::kUnevenBlocks && view.rank == 1;
      RL_ASSERT((Sum<Protocol>(sys, view, operation++, is_uneven ? 1 : blocks, kItems)));
    }
  }
  template <Setup kSetup>
  static void Extra(World<kSetup>& world) {}
  template <Setup kSetup>
  static void After(const Record& record) {}
};

// The last operation alone uses the second item.
struct SlotFirstUsedLate : Sums<1> {
  template <class Protocol, Setup kSetup>
  static void Member(ModelSys<kSetup>& sys, const RankView& view, Record& record) {
    for (int operation = 0; operation < 4; ++operation) {
      RL_ASSERT((Sum<Protocol>(sys, view, operation, 1, operation == 3 ? 2 : 1)));
    }
  }
};

// A STEP of kOperations sums and its close; any wait may run out. What an operation stored is right
// whatever happened, and a STEP that succeeded on one rank was refused by none.
template <int kOperations>
struct Step : Sums<1> {
  template <class Protocol, Setup kSetup>
  static void Member(ModelSys<kSetup>& sys, const RankView& view, Record& record) {
    sys.set_may_run_out(kSetup.has_timeouts);
    bool is_ok = true;
    for (int operation = 0; operation < kOperations; ++operation) {
      const bool is_done = Sum<Protocol>(sys, view, operation, kSetup.blocks, kSetup.blocks);
      is_ok = is_ok && is_done;
    }
    if (!is_ok) record.has_refused[view.rank] = true;
    Finish<Protocol>(sys, view, record, is_ok);
  }
  template <class Protocol, Setup kSetup>
  static void Finish(ModelSys<kSetup>& sys, const RankView& view, Record& record, bool is_ok) {
    if (kSetup.mutant == Mutant::kNoClose) {
      is_ok = is_ok && sys.LoadStatus(OwnHeader(view)).error == 0;
    } else {
      is_ok = Close<Protocol>(sys, view);
    }
    if (sys.block() == 0 && sys.thread() == 0) record.is_step_ok[view.rank] = is_ok;
  }
  template <Setup kSetup>
  static void After(const Record& record) {
    for (int rank = 0; rank < kSetup.ranks; ++rank) {
      for (int other = 0; other < kSetup.ranks; ++other) {
        RL_ASSERT(!record.is_step_ok[rank] || !record.has_refused[other]);
      }
    }
  }
};

// Rank 0 sends a token that is not its own. kIsClosed false: the operation alone must tell rank 0.
template <bool kIsClosed>
struct BadId : Step<0> {
  template <class Protocol, Setup kSetup>
  static void Member(ModelSys<kSetup>& sys, const RankView& view, Record& record) {
    sys.Begin();
    const bool is_done = Exchange<Protocol, BestRecord>(
        sys, view, 1,
        [&](int64_t i) {
          return Scored{1.0f, view.rank == 0 ? 99 : view.rank * 10};
        },
        [](int64_t i, const Scored& best) {});
    if (!is_done) record.has_refused[view.rank] = true;
    if constexpr (kIsClosed) {
      sys.Boundary();
      Step<0>::Finish<Protocol>(sys, view, record, is_done);
    } else {
      record.is_step_ok[view.rank] = is_done;
      sys.Boundary();
    }
  }
};

// The best two of both ranks, three times: records whose words must come together.
struct BestTwo : Sums<1> {
  template <class Protocol, Setup kSetup>
  static void Member(ModelSys<kSetup>& sys, const RankView& view, Record& record) {
    for (int operation = 0; operation < 3; ++operation) {
      sys.Begin();
      const float score = ValueOf(view.rank, operation, 0);
      const bool is_done = Exchange<Protocol, BestTwoRecord>(
          sys, view, 1,
          [&](int64_t i) {
            return TopTwo{{score, view.rank * 10}, {score - 1, view.rank * 10 + 1}};
          },
          [&](int64_t i, const TopTwo& best) {
            RL_ASSERT(best.first.token == 10 && best.second.token == 11);
            RL_ASSERT(best.second.score == ValueOf(1, operation, 0) - 1);
          });
      RL_ASSERT(is_done);
      sys.Boundary();
    }
  }
};

// Rank 1 never comes. One block of rank 0 may run out of time; the others have only the header.
struct LostPeer : Sums<1> {
  template <class Protocol, Setup kSetup>
  static void Member(ModelSys<kSetup>& sys, const RankView& view, Record& record) {
    if (view.rank != 0) return;
    sys.set_may_run_out(sys.block() == 0);
    RL_ASSERT(!(Sum<Protocol>(sys, view, 0, kSetup.blocks, kSetup.blocks)));
    RL_ASSERT(!(Sum<Protocol>(sys, view, 1, kSetup.blocks, kSetup.blocks)));
  }
};

// Rank 1 never comes, no clock runs; the host cancels at some moment.
struct Cancel : Sums<1> {
  static constexpr int kExtraThreads = 1;
  template <class Protocol, Setup kSetup>
  static void Member(ModelSys<kSetup>& sys, const RankView& view, Record& record) {
    if (view.rank != 0) return;
    RL_ASSERT(!(Sum<Protocol>(sys, view, 0, kSetup.blocks, kSetup.blocks)));
    RL_ASSERT(sys.LoadStatus(OwnHeader(view)).error == kCancelled);
  }
  template <Setup kSetup>
  static void Extra(World<kSetup>& world) {
    for (auto& state : world.states) state.cancel.store(1, rl::mo_relaxed, RL_INFO);
  }
};

// A line and a flag of the first epoch before a reset arrive after it. They may cost the operation,
// never its bits.
struct LateStore : Sums<1> {
  static constexpr int kExtraThreads = 1;
  template <class Protocol, Setup kSetup>
  static void Member(ModelSys<kSetup>& sys, const RankView& view, Record& record) {
    sys.set_may_run_out(true);
    Sum<Protocol>(sys, view, 0, 1, 1);
  }
  template <Setup kSetup>
  static void Extra(World<kSetup>& world) {
    auto& state = world.states[1];
    const uint32_t foreign[4] = {std::bit_cast<uint32_t>(-7.0f)};
    const int slot = World<kSetup>::kSources * kCapacity;  // epoch 1 has parity 1
    state.lines[slot].store(uint64_t{MakeTag(0, 1)} << 32 | world.table.IdOf(foreign),
                            rl::mo_relaxed, RL_INFO);
    state.flags[0][0].store(MakeTag(0, 1), rl::mo_release, RL_INFO);
  }
};

template <class Protocol, Setup kSetup, class Scenario>
struct Model
    : rl::test_suite<Model<Protocol, kSetup, Scenario>,
                     kSetup.ranks * kSetup.blocks * kSetup.threads + Scenario::kExtraThreads> {
  World<kSetup> world;
  Record record;

  void before() {
    const bool is_reset = std::is_same_v<Scenario, LateStore>;
    if (!is_reset || kSetup.mutant == Mutant::kNoGeneration) return;
    for (auto& state : world.states) state.generation.store(1, rl::mo_relaxed, RL_INFO);
  }
  void thread(unsigned index) {
    constexpr unsigned kPerRank = kSetup.blocks * kSetup.threads;
    if (index >= kSetup.ranks * kPerRank) {
      Scenario::template Extra<kSetup>(world);
      return;
    }
    const int rank = static_cast<int>(index / kPerRank);
    const int place = static_cast<int>(index % kPerRank);
    ModelSys<kSetup> sys(world, rank, place / kSetup.threads, place % kSetup.threads);
    Scenario::template Member<Protocol, kSetup>(sys, ViewOf<kSetup>(rank), record);
  }
  void after() { Scenario::template After<kSetup>(record); }
};

}  // namespace tp2::coll::model
