#include "cmd/tp2-tune/tune.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cmd/common/interrupt.h"
#include "cmd/tp2-tune/plan.h"
#include "cmd/tp2-tune/tables.h"
#include "libcore/base/digest.h"
#include "libcore/base/error.h"
#include "libcore/base/file.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/conditions.h"
#include "libcore/bench/result.h"
#include "libcore/bench/tune.h"
#include "libcore/bench/tune_stopwatch.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/self_run.h"
#include "libcore/report/exit_code.h"
#include "libcore/report/output.h"
#include "libcore/report/progress.h"

namespace tp2::tune {
namespace {

using bench::CardFacts;

// Where the table goes, refused before anything is measured.
struct Target {
  std::optional<AtomicFileWriter> file;
  std::optional<tuning::KernelTable> base;  // what --merge keeps
};

absl::StatusOr<Target> OpenTarget(const Flags& flags) {
  Target target;
  const bool merges = flags.may_merge && std::filesystem::exists(flags.table_path);
  if (merges) {
    TP2_ASSIGN_OR_RETURN(target.base, tuning::ReadKernelTable(flags.table_path));
    TP2_RETURN_IF_ERROR(tuning::CheckBuild(*target.base));
  }
  TP2_ASSIGN_OR_RETURN(
      target.file,
      AtomicFileWriter::Create(flags.table_path, merges ? IfExists::kReplace : IfExists::kRefuse));
  return target;
}

absl::StatusOr<tuning::CardKind> KindOf(const std::vector<CardFacts>& cards) {
  const tuning::CardKind kind = {cards[0].name, cards[0].capability, cards[0].multiprocessors};
  for (const CardFacts& card : cards) {
    if (tuning::CardKind{card.name, card.capability, card.multiprocessors} == kind) continue;
    return MakeError(absl::StatusCode::kUnavailable, {.what = "cards of a pair",
                                                      .expected = "two of one kind",
                                                      .got = kind.name + " and " + card.name});
  }
  return kind;
}

// Every graph key of every mode in one text.
absl::StatusOr<std::string> DigestOf(const Flags& flags, const std::vector<std::string>& uuids,
                                     const std::shared_ptr<tuning::KernelChoices>& kernels) {
  std::string digest;
  for (const char* mode : {"one-card", "pair"}) {
    if (uuids.size() < 2 && mode == std::string("pair")) continue;
    TP2_ASSIGN_OR_RETURN(const std::unique_ptr<StepEngine> engine,
                         MakeEngine({.model_dir = flags.model_dir,
                                     .backend = "cuda",
                                     .mode = mode,
                                     .device_uuids = uuids,
                                     .kernels = kernels}));
    TP2_ASSIGN_OR_RETURN(const SelfRunResult result, RunGrid(*engine, {}));
    absl::StrAppend(&digest, digest.empty() ? "" : " ", mode, " ", Hex64(result.digest));
    if (result.plain_differences > 0) absl::StrAppend(&digest, " plain drafts differ");
  }
  return digest;
}

// Driver and clocks of rank 0's card as it was right behind the last candidate.
void AddConditions(const std::optional<telemetry::CardSample>& then, bench::Conditions& conditions,
                   tuning::KernelTable& table) {
  if (then.has_value()) {
    if (then->sm_clock_mhz.value_or(0) > 0) table.sm_clock_mhz = *then->sm_clock_mhz;
    if (then->memory_clock_mhz.value_or(0) > 0) table.memory_clock_mhz = *then->memory_clock_mhz;
  }
  const Json facts = conditions.Finish();
  const bool has_driver = facts["nvml"].is_object() && facts["nvml"]["driver"].is_string() &&
                          !facts["nvml"]["driver"].get_ref<const std::string&>().empty();
  table.driver = has_driver ? facts["nvml"]["driver"].get<std::string>() : "unknown";
}

absl::StatusOr<bench::TuneOutcome> TuneWith(const Flags& flags, const tuning::CardKind& kind,
                                            const std::vector<std::string>& uuids,
                                            const bench::Conditions& conditions,
                                            std::optional<telemetry::CardSample>& then) {
  Flags both = flags;
  both.tps = uuids.size() < 2 ? std::vector<int>{1} : std::vector<int>{1, 2};
  TP2_ASSIGN_OR_RETURN(const DrafterConfig config, LoadDrafterConfig(flags.model_dir));
  bench::TuneRequest request;
  request.card = kind;
  request.only = flags.only;
  TP2_ASSIGN_OR_RETURN(request.launches, LaunchesOf(both, {1}));
  request.select = {.rounds = flags.rounds, .replays = flags.replays, .is_interrupted = [] {
                      return cmd::InterruptSignal() != 0;
                    }};
  Progress progress("tp2-tune");
  request.on_key = [&progress](const std::string& name, int done, int all) {
    progress.Update(done, all, name);
  };
  const int64_t max_words = int64_t{kMaxRequests} * kBlockRows * config.dim;
  const bench::TuneParts parts = {
      .products =
          [&] { return bench::MakeProductStopwatch(config, uuids[0], request.launches.products); },
      .reduces = [&] { return bench::MakeReduceStopwatch(uuids, max_words); },
      .digest =
          [&](const std::shared_ptr<tuning::KernelChoices>& kernels) {
            // The second time, right behind the last candidate.
            if (kernels != nullptr) then = conditions.Read();
            return DigestOf(flags, uuids, kernels);
          }};
  return bench::Tune(request, parts);
}

}  // namespace

absl::StatusOr<int> TuneCards(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(Target target, OpenTarget(flags));
  const size_t card_count = std::max<size_t>(1, flags.device_uuids.size());
  TP2_ASSIGN_OR_RETURN(const std::vector<CardFacts> cards,
                       bench::SelectCards(flags.device_uuids, static_cast<int>(card_count)));
  TP2_ASSIGN_OR_RETURN(const tuning::CardKind kind, KindOf(cards));
  if (target.base.has_value()) TP2_RETURN_IF_ERROR(tuning::CheckCard(*target.base, kind));
  cmd::WatchInterrupts();
  std::vector<std::string> uuids;
  for (const CardFacts& card : cards) uuids.push_back(card.uuid);
  bench::Conditions conditions(
      cards, flags.nvml_library.empty() ? telemetry::kDefaultNvmlLibrary : flags.nvml_library);
  std::optional<telemetry::CardSample> then;
  TP2_ASSIGN_OR_RETURN(bench::TuneOutcome outcome, TuneWith(flags, kind, uuids, conditions, then));
  for (const std::string& failure : outcome.failures) {
    std::cerr << "tp2-tune: warning: " << failure << "\n";
  }
  if (!outcome.has_equal_digests()) {
    TP2_RETURN_IF_ERROR(
        PrintResult(absl::StrCat("before  ", outcome.digest_before, "\nafter   ",
                                 outcome.digest_after, "\ndiffer: nothing is written\n")));
    return kExitCheckFailed;
  }
  if (bench::IsThrottled(then)) {
    std::cerr << "tp2-tune: error: a throttled card: expected times at its usual clocks; nothing "
                 "is written\n";
    return kExitMeasurement;
  }
  tuning::KernelTable table = std::move(outcome.table);
  AddConditions(then, conditions, table);
  if (target.base.has_value()) {
    TP2_ASSIGN_OR_RETURN(table, tuning::Merge(*target.base, table));
  }
  TP2_RETURN_IF_ERROR(target.file->Append(table.ToText()));
  TP2_RETURN_IF_ERROR(target.file->Commit());
  TP2_RETURN_IF_ERROR(PrintResult(
      absl::StrCat(TableText(flags.table_path, table), "# bits    ", outcome.digest_after,
                   ", as without a table\n# wrote   ", flags.table_path, "\n")));
  return kExitOk;
}

}  // namespace tp2::tune
