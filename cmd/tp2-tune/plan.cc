#include "cmd/tp2-tune/plan.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cmd/tp2-tune/known_cards.h"
#include "libcore/base/error.h"
#include "libcore/base/file.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/tune.h"
#include "libcore/checkpoint/shard_set.h"
#include "libcore/report/exit_code.h"
#include "libcore/report/output.h"
#include "libcore/tuning/candidates.h"

namespace tp2::tune {
namespace {

using tuning::CandidateList;
using tuning::KernelKey;
using tuning::ProductLaunch;

constexpr char kCardWithoutGpu[] = "h200";

std::string KeyText(const std::string& what, const KernelKey& key, const CandidateList& list,
                    const tuning::Choice& safe) {
  std::string text =
      absl::StrCat(tuning::KeyName(key), "  ", what, "  safe ", tuning::ChoiceText(safe), "\n");
  for (const tuning::Choice& choice : list.choices) {
    absl::StrAppend(&text, "  time   ", tuning::ChoiceText(choice), "\n");
  }
  for (const tuning::Pruned& pruned : list.pruned) {
    absl::StrAppend(&text, "  prune  ", pruned.choice, ": ", pruned.reason, "\n");
  }
  return text;
}

std::string What(const ProductLaunch& launch) {
  return absl::StrCat(launch.what, ", ", launch.k, " x ", absl::StrJoin(launch.outputs, " + "),
                      ", ", launch.rows, " rows", launch.is_insert ? ", insert" : "");
}

std::string PlanText(const LaunchList& launches, const tuning::CardKind& card,
                     const std::string& only) {
  const tuning::KernelTable safe = bench::DerivedTable(launches, card);
  const auto candidates = bench::CandidatesOf(launches, card);
  size_t key_count = 0, choice_count = 0;
  std::string text;
  const auto add = [&](const std::string& what, const KernelKey& key, const CandidateList& list) {
    if (!bench::IsNamed(key, only)) return;
    ++key_count;
    choice_count += list.choices.size();
    absl::StrAppend(&text, KeyText(what, key, list, safe.Find(key)->choice));
  };
  for (const ProductLaunch& launch : launches.products) {
    if (const auto found = candidates.find(launch.key()); found != candidates.end()) {
      add(What(launch), launch.key(), found->second);
    } else if (bench::IsNamed(launch.key(), only)) {
      const CandidateList list = tuning::ProductCandidates(launch, card.multiprocessors);
      absl::StrAppend(&text, tuning::KeyName(launch.key()), "  ", What(launch), "  no choice\n",
                      "  prune  ", list.pruned.back().choice, ": ", list.pruned.back().reason,
                      "\n");
    }
  }
  for (const tuning::ReduceKey& key : launches.reduces) {
    add("sum of two ranks", key, candidates.at(key));
  }
  return absl::StrCat("# tp2-tune plan  ", card.name, "  sm_", card.sm, "  ", card.multiprocessors,
                      " SM\n# routed experts are cut on the device, by the ",
                      "work that there is\n", text, "# ", key_count, " keys, ", choice_count,
                      " candidates\n");
}

}  // namespace

absl::StatusOr<LaunchList> LaunchesOf(const Flags& flags, const std::vector<int>& default_tps) {
  TP2_ASSIGN_OR_RETURN(const DrafterConfig config, LoadDrafterConfig(flags.model_dir));
  const std::vector<int>& tps = flags.tps.empty() ? default_tps : flags.tps;
  if (flags.is_config_only) {
    return ListLaunches(config, tps, MissionForms(config));
  }
  TP2_ASSIGN_OR_RETURN(const ShardSet shards, OpenShards(flags.model_dir));
  return ListLaunches(config, tps, FormsIn(shards.tensors));
}

absl::StatusOr<int> PrintPlan(const Flags& flags) {
  absl::StatusOr<tuning::CardKind> card = FindCard(flags.card, flags.device_uuids);
  if (!card.ok()) {
    // A UUID that is not there is no wish for another card.
    if (!flags.device_uuids.empty()) return card.status();
    card = KnownCard(kCardWithoutGpu);
  }
  TP2_ASSIGN_OR_RETURN(const LaunchList launches, LaunchesOf(flags, {1, 2}));
  if (!flags.json_path.empty()) {
    TP2_RETURN_IF_ERROR(WriteFileAtomically(
        flags.json_path, bench::DerivedTable(launches, *card).ToText(), IfExists::kRefuse));
  }
  TP2_RETURN_IF_ERROR(PrintResult(PlanText(launches, *card, flags.only)));
  return kExitOk;
}

}  // namespace tp2::tune
