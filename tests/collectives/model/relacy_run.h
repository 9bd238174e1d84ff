// How a case is run, for the files that list them.
#pragma once

#include <sstream>

#include "tests/collectives/model/model_case.h"
#include "tests/collectives/model/scenarios.h"

namespace tp2::coll::model {

inline Verdict VerdictOf(rl::test_result_e result) {
  switch (result) {
    case rl::test_result_success:
      return kHolds;
    case rl::test_result_data_race:
      return kRace;
    case rl::test_result_unitialized_access:
      return kRace;
    case rl::test_result_livelock:
      return kHang;
    case rl::test_result_deadlock:
      return kHang;
    case rl::test_result_user_assert_failed:
      return kWrong;
    default:
      return kBroken;
  }
}

// Not rl::simulate, which would compile every case for three schedulers. `executions` of 0: all of
// them with at most two switches away from a thread that could go on.
template <class Test, template <rl::thread_id_t> class Scheduler = rl::random_scheduler>
Outcome Run(unsigned long executions) {
  std::ostringstream report;
  std::ostringstream state;
  rl::test_params params;
  params.iteration_count = executions == 0 ? ~0ul : executions;
  params.context_bound = 2;
  params.output_stream = &report;
  params.progress_stream = &report;
  const rl::test_result_e result =
      rl::run_test<Test, Scheduler<Test::params::thread_count>>(params, state, false);
  return {VerdictOf(result), rl::test_result_str(result),
          static_cast<unsigned long>(params.stop_iteration)};
}

template <class Protocol, Setup kSetup, class Scenario>
constexpr auto kRun = &Run<Model<Protocol, kSetup, Scenario>>;
template <class Protocol, Setup kSetup, class Scenario>
constexpr auto kRunAll = &Run<Model<Protocol, kSetup, Scenario>, rl::context_bound_scheduler>;

constexpr unsigned long kMany = 100000;
constexpr unsigned long kFew = 30000;

using M = Mutant;

// Two ranks of one block; of two blocks, the second idle in the second operation; with waits that
// may run out.
template <class P, Mutant kMutant = M::kNone, class Scenario = Sums<1, 1, 1, 1>>
constexpr auto kPair = kRun<P, Setup{.mutant = kMutant}, Scenario>;
template <class P, Mutant kMutant = M::kNone, class Scenario = Sums<2, 2, 1, 2>>
constexpr auto kBlocks = kRun<P, Setup{.blocks = 2, .mutant = kMutant}, Scenario>;
template <class P, Mutant kMutant, class Scenario>
constexpr auto kLate = kRun<P, Setup{.mutant = kMutant, .has_timeouts = true}, Scenario>;

}  // namespace tp2::coll::model
