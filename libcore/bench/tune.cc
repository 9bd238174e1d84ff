#include "libcore/bench/tune.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2::bench {
namespace {

using tuning::CandidateList;
using tuning::Choice;
using tuning::KernelEntry;
using tuning::KernelKey;
using tuning::ReduceKey;

// Of 1024 threads: one on each multiprocessor, which every card of the product has room for.
int ResidentBlocks(const tuning::CardKind& card) { return card.multiprocessors; }

class Tuner {
 public:
  explicit Tuner(const TuneRequest& request) : request_(request) {}

  absl::Status Collect() {
    for (auto& [key, list] : CandidatesOf(request_.launches, request_.card)) {
      if (!IsNamed(key, request_.only)) continue;
      if (request_.is_reversed) std::reverse(list.choices.begin(), list.choices.end());
      if (const auto* reduce = std::get_if<ReduceKey>(&key)) {
        reduces_[*reduce] = list.choices;
      } else {
        products_[key] = list.choices;
      }
    }
    if (!products_.empty() || !reduces_.empty()) return absl::OkStatus();
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = "--only",
                      .expected = "a key of this model, or its first parts",
                      .got = request_.only,
                      .next = "tp2-tune plan lists the keys"});
  }

  absl::Status Run(const TuneParts& parts) {
    if (!products_.empty()) {
      TP2_ASSIGN_OR_RETURN(const auto stopwatch, parts.products());
      for (const auto& [key, choices] : products_) {
        Tell(KeyName(key));
        TP2_ASSIGN_OR_RETURN(tuning::Selection selection,
                             Select(*stopwatch, key, choices, request_.select));
        for (const tuning::Timing& timing : selection.timings) {
          if (timing.failure.ok()) continue;
          failures_.push_back(absl::StrCat(KeyName(key), " ", ChoiceText(timing.choice), ": ",
                                           std::string(timing.failure.message())));
        }
        entries_[key] = std::move(selection.entry);
      }
    }
    if (reduces_.empty()) return absl::OkStatus();
    TP2_ASSIGN_OR_RETURN(const auto stopwatch, parts.reduces());
    Tell("all_reduce");
    TP2_ASSIGN_OR_RETURN(const auto chosen,
                         tuning::SelectReduces(*stopwatch, reduces_, request_.select));
    for (const auto& [key, entry] : chosen) entries_[key] = entry;
    return absl::OkStatus();
  }

  TuneOutcome Take() {
    TuneOutcome outcome;
    outcome.table.card = request_.card;
    outcome.table.build = tuning::ThisBuild();
    outcome.table.entries = std::move(entries_);
    outcome.failures = std::move(failures_);
    return outcome;
  }

 private:
  void Tell(const std::string& name) {
    const auto all = static_cast<int>(products_.size() + (reduces_.empty() ? 0 : 1));
    if (request_.on_key) request_.on_key(name, done_++, all);
  }

  const TuneRequest& request_;
  std::map<KernelKey, std::vector<Choice>> products_;
  std::map<ReduceKey, std::vector<Choice>> reduces_;
  std::map<KernelKey, KernelEntry> entries_;
  std::vector<std::string> failures_;
  int done_ = 0;
};

}  // namespace

std::map<KernelKey, CandidateList> CandidatesOf(const LaunchList& launches,
                                                const tuning::CardKind& card) {
  std::map<KernelKey, CandidateList> all;
  for (const tuning::ProductLaunch& launch : launches.products) {
    if (!launch.has_room_for_sums()) continue;
    all[launch.key()] = tuning::ProductCandidates(launch, card.multiprocessors);
  }
  for (const ReduceKey& key : launches.reduces) {
    all[key] = tuning::ReduceCandidates(key, ResidentBlocks(card), card.multiprocessors);
  }
  return all;
}

tuning::KernelTable DerivedTable(const LaunchList& launches, const tuning::CardKind& card) {
  tuning::KernelTable table;
  table.card = card;
  table.build = tuning::ThisBuild();
  const auto add = [&table](const KernelKey& key, const Choice& choice) {
    table.entries[key] = {choice, std::nullopt, std::nullopt, std::nullopt};
  };
  for (const tuning::ProductLaunch& launch : launches.products) {
    if (!launch.has_room_for_sums()) continue;
    add(launch.key(), tuning::SafeChoice(launch, card.multiprocessors));
  }
  for (const ReduceKey& key : launches.reduces) {
    add(key, tuning::SafeChoice(key, ResidentBlocks(card), card.multiprocessors));
  }
  return table;
}

bool IsNamed(const KernelKey& key, const std::string& only) {
  const std::string name = KeyName(key);
  return only.empty() || name == only || name.starts_with(only + "/");
}

absl::StatusOr<TuneOutcome> Tune(const TuneRequest& request, const TuneParts& parts) {
  Tuner tuner(request);
  TP2_RETURN_IF_ERROR(tuner.Collect());
  TP2_ASSIGN_OR_RETURN(std::string before, parts.digest(nullptr));
  TP2_RETURN_IF_ERROR(tuner.Run(parts));
  TuneOutcome outcome = tuner.Take();
  outcome.digest_before = std::move(before);
  TP2_ASSIGN_OR_RETURN(outcome.digest_after, parts.digest(std::make_shared<tuning::KernelChoices>(
                                                 outcome.table, "tuned")));
  return outcome;
}

}  // namespace tp2::bench
