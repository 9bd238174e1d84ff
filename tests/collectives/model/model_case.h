// What the model checker runs: named cases and how each must end. Knows nothing of Relacy.
#pragma once

#include <span>

namespace tp2::coll::model {

// kHolds, or how a broken variant was caught; several in `Case::expected`: any of them will do.
enum Verdict : unsigned { kHolds = 0, kRace = 1, kHang = 2, kWrong = 4, kBroken = 8 };

struct Outcome {
  Verdict verdict = kBroken;
  const char* text = "";         // Relacy's word for it
  unsigned long executions = 0;  // until the end or the first failure
};

struct Case {
  const char* name;
  unsigned expected;
  unsigned long executions;  // at most; 0: all with at most two preemptions
  Outcome (*run)(unsigned long executions);
};

// Each protocol's rules, then its mutants.
std::span<const Case> LineCases();
std::span<const Case> AckCases();

}  // namespace tp2::coll::model
