// One tuning run: digests of the drafts, the choice for every launch, digests again. Knows no card:
// stopwatches, engines and the file stay with the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/drafter/launch_list.h"
#include "libcore/tuning/candidates.h"
#include "libcore/tuning/kernel_choices.h"
#include "libcore/tuning/kernel_table.h"
#include "libcore/tuning/select.h"

namespace tp2::bench {

// The candidates of every launch, without those that have no choice.
std::map<tuning::KernelKey, tuning::CandidateList> CandidatesOf(const LaunchList& launches,
                                                                const tuning::CardKind& card);

// Safe choices for every key, no times: derived from the card's capability, not measured.
tuning::KernelTable DerivedTable(const LaunchList& launches, const tuning::CardKind& card);

// Whether `only` names the key: the whole name or its first parts ("product/K6").
bool IsNamed(const tuning::KernelKey& key, const std::string& only);

struct TuneRequest {
  tuning::CardKind card;
  LaunchList launches;
  std::string only;  // empty: every key
  tuning::SelectOptions select;
  bool is_reversed = false;  // candidates in the opposite order; the choices are the same
  // Before each key, with its name and place. May be empty.
  std::function<void(const std::string&, int done, int all)> on_key = {};
};

struct TuneParts {
  // Made when the engine of the first digests is gone. `reduces` is called when all-reduces are
  // wanted.
  std::function<absl::StatusOr<std::unique_ptr<tuning::Stopwatch>>()> products, reduces;
  // What a drafter drafts with these choices; null: with none.
  std::function<absl::StatusOr<std::string>(std::shared_ptr<tuning::KernelChoices>)> digest;
};

struct TuneOutcome {
  tuning::KernelTable table;  // entries and card; the caller adds driver and clocks
  std::string digest_before, digest_after;
  std::vector<std::string> failures;  // "KEY CHOICE: reason" of candidates that this card refused
  bool has_equal_digests() const { return digest_before == digest_after; }
};

// Errors: kInvalidArgument when `only` names no key; kCancelled; those of the parts.
absl::StatusOr<TuneOutcome> Tune(const TuneRequest& request, const TuneParts& parts);

}  // namespace tp2::bench
