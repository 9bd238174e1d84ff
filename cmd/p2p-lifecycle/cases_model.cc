// The lifecycle with a drafter: its graphs are captured on both cards while the other rank's exist,
// its drafts are held against both ranks emulated on one card, bit for bit.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cmd/p2p-lifecycle/case_setup.h"
#include "libcore/base/status_macros.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/self_run.h"

namespace tp2::lifecycle {
namespace {

// Everything that a drafter of this mode puts out over random rounds and over every graph key.
struct Digests {
  uint64_t rounds = 0;
  uint64_t grid = 0;

  bool operator==(const Digests&) const = default;
};

absl::StatusOr<Digests> DigestsOf(const EngineOptions& options, uint64_t seed) {
  TP2_ASSIGN_OR_RETURN(const std::unique_ptr<StepEngine> engine, MakeEngine(options));
  Digests digests;
  TP2_ASSIGN_OR_RETURN(const SelfRunResult rounds, RunSelf(*engine, {.seed = seed}));
  TP2_ASSIGN_OR_RETURN(const SelfRunResult grid, RunGrid(*engine, {.seed = seed}));
  digests.rounds = rounds.digest;
  digests.grid = grid.digest;
  return digests;
}

}  // namespace

absl::StatusOr<CaseResult> RunModel(const CaseOptions& options) {
  if (options.model_dir.empty()) {
    return CaseResult{Verdict::kWaived, "needs --with-model DIR", Json::object()};
  }
  TP2_ASSIGN_OR_RETURN(const auto cards, CardsFor(options));
  EngineOptions engine = {.model_dir = options.model_dir,
                          .backend = "cuda",
                          .mode = "emulated",
                          .device_uuids = {cards[0].uuid},
                          .timeout_ms = options.timeout_ms};
  TP2_ASSIGN_OR_RETURN(const Digests expected, DigestsOf(engine, options.seed));
  engine.mode = "pair";
  int pairs = 0;
  for (int cycle = 0; cycle < options.cycles; ++cycle) {
    for (const bool is_swapped : {false, true}) {
      engine.device_uuids = {cards[is_swapped ? 1 : 0].uuid, cards[is_swapped ? 0 : 1].uuid};
      for (const bool uses_graphs : {true, false}) {
        engine.uses_graphs = uses_graphs;
        TP2_ASSIGN_OR_RETURN(const Digests digests, DigestsOf(engine, options.seed));
        if (digests != expected) {
          return Fail(absl::StrCat("cycle ", cycle, ", ", is_swapped ? "swapped" : "as chosen",
                                   ", ", uses_graphs ? "graphs" : "eager",
                                   ": other bits than both ranks emulated on one card"));
        }
        ++pairs;
      }
    }
  }
  return Pass(
      absl::StrCat(pairs, " pairs made and destroyed, graphs and eager, both orders of the ",
                   "cards: the bits of both ranks emulated on one card"),
      {{"pairs", pairs}, {"digest", absl::StrCat(absl::Hex(expected.grid))}});
}

}  // namespace tp2::lifecycle
