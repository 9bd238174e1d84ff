#include "cmd/tp2-tune/tables.h"

#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cmd/tp2-tune/known_cards.h"
#include "cmd/tp2-tune/plan.h"
#include "libcore/base/status_macros.h"
#include "libcore/report/exit_code.h"
#include "libcore/report/output.h"
#include "libcore/report/table.h"

namespace tp2::tune {
namespace {

using tuning::KernelEntry;
using tuning::KernelKey;
using tuning::KernelTable;

std::string UsText(const std::optional<double>& us) {
  return us.has_value() ? absl::StrFormat("%.2f", *us) : "-";
}

std::string PctText(const std::optional<double>& pct) {
  return pct.has_value() ? absl::StrFormat("%+.1f", *pct) : "-";
}

std::string CardLine(const KernelTable& table) {
  return absl::StrCat(table.card.name, "  sm_", table.card.sm, "  ", table.card.multiprocessors,
                      " SM");
}

// "-" where a table lacks the key or has not measured it.
std::string ChoiceOf(const KernelEntry* entry) {
  return entry != nullptr ? tuning::ChoiceText(entry->choice) : "-";
}
std::optional<double> UsOf(const KernelEntry* entry) {
  return entry != nullptr ? entry->us_p50 : std::nullopt;
}

}  // namespace

std::string TableText(const std::string& path, const KernelTable& table) {
  std::string text =
      absl::StrCat("# ", path, "  ", tuning::kTableSchema, "\n# card    ", CardLine(table),
                   "\n# build   ", table.build.version, " (", table.build.git, "), numerics ",
                   table.build.numerics_version, ", launches ", table.build.launch_version, "\n");
  if (table.is_measured()) {
    absl::StrAppend(&text, "# times   driver ", *table.driver);
    if (table.sm_clock_mhz.has_value()) {
      absl::StrAppend(&text, ", SM at ", *table.sm_clock_mhz, " MHz at the end");
    }
    absl::StrAppend(&text, "\n");
  } else {
    absl::StrAppend(&text, "# times   none: derived from the card's capability, not measured\n");
  }
  Table rows({{"key", ""}, {"choice", ""}, {"p50", "(us)"}, {"runner-up", ""}, {"gap", "(%)"}});
  for (const auto& [key, entry] : table.entries) {
    rows.AddRow({tuning::KeyName(key), tuning::ChoiceText(entry.choice), UsText(entry.us_p50),
                 entry.runner_up.has_value() ? tuning::ChoiceText(*entry.runner_up) : "-",
                 PctText(entry.us_gap_pct)});
  }
  absl::StrAppend(&text, rows.Render(), "# ", table.entries.size(), " keys\n");
  return text;
}

absl::StatusOr<int> CheckTable(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const KernelTable table, tuning::ReadKernelTable(flags.table_path));
  TP2_RETURN_IF_ERROR(tuning::CheckBuild(table));
  const absl::StatusOr<tuning::CardKind> card = FindCard(flags.card, flags.device_uuids);
  std::string text = absl::StrCat("card   ", CardLine(table));
  if (card.ok()) {
    TP2_RETURN_IF_ERROR(tuning::CheckCard(table, *card));
    absl::StrAppend(&text, "\n");
  } else {
    if (!flags.device_uuids.empty()) return card.status();
    absl::StrAppend(&text, "; held against none: no usable GPU here, and no --card\n");
  }
  absl::StrAppend(&text, "build  numerics ", table.build.numerics_version, ", launches ",
                  table.build.launch_version, "\n");
  TP2_ASSIGN_OR_RETURN(const LaunchList launches, LaunchesOf(flags, {1}));
  size_t missing = 0;
  for (const KernelKey& key : launches.Keys()) {
    if (table.Find(key) != nullptr) continue;
    ++missing;
    absl::StrAppend(&text, "missing  ", tuning::KeyName(key), "\n");
  }
  absl::StrAppend(&text, launches.Keys().size() - missing, " of ", launches.Keys().size(),
                  " launch shapes; ", missing == 0 ? "covered" : "not covered", "\n");
  TP2_RETURN_IF_ERROR(PrintResult(text));
  return missing == 0 ? kExitOk : kExitCheckFailed;
}

absl::StatusOr<int> ShowTable(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const KernelTable table, tuning::ReadKernelTable(flags.table_path));
  TP2_RETURN_IF_ERROR(PrintResult(TableText(flags.table_path, table)));
  return kExitOk;
}

absl::StatusOr<int> DiffTables(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const KernelTable before, tuning::ReadKernelTable(flags.table_path));
  TP2_ASSIGN_OR_RETURN(const KernelTable after, tuning::ReadKernelTable(flags.other_path));
  std::string text =
      absl::StrCat("# tp2-tune diff  ", flags.table_path, "  ", flags.other_path, "\n");
  if (before.card != after.card) {
    absl::StrAppend(&text, "# differs  card: ", CardLine(before), "; ", CardLine(after), "\n");
  }
  if (before.driver != after.driver) {
    absl::StrAppend(&text, "# differs  driver: ", before.driver.value_or("none"), "; ",
                    after.driver.value_or("none"), "\n");
  }
  Table rows({{"key", ""},
              {"before", ""},
              {"after", ""},
              {"before", "(us)"},
              {"after", "(us)"},
              {"change", "(%)"}});
  std::set<KernelKey> keys;
  for (const KernelTable* table : {&before, &after}) {
    for (const auto& [key, entry] : table->entries) keys.insert(key);
  }
  int changes = 0;
  for (const KernelKey& key : keys) {
    const KernelEntry* const a = before.Find(key);
    const KernelEntry* const b = after.Find(key);
    if (a != nullptr && b != nullptr && a->choice == b->choice) continue;
    ++changes;
    const std::optional<double> us_a = UsOf(a), us_b = UsOf(b);
    std::optional<double> change_pct;
    if (us_a.has_value() && us_b.has_value()) change_pct = 100 * (*us_b - *us_a) / *us_a;
    rows.AddRow({tuning::KeyName(key), ChoiceOf(a), ChoiceOf(b), UsText(us_a), UsText(us_b),
                 PctText(change_pct)});
  }
  if (changes > 0) absl::StrAppend(&text, rows.Render());
  absl::StrAppend(&text, "# ", changes, " of ", keys.size(), " choices differ\n");
  TP2_RETURN_IF_ERROR(PrintResult(text));
  return kExitOk;
}

}  // namespace tp2::tune
