// tp2_kernels.json, schema tp2-kernels/1: which shape each launch takes on one kind of card, and
// where that comes from. Times only: no choice can change a bit, so no digest of a table enters an
// identity. A table made without measuring says so: its times are null.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/base/json.h"
#include "libcore/tuning/kernel_key.h"

namespace tp2::tuning {

inline constexpr char kTableSchema[] = "tp2-kernels/1";

// What a choice depends on.
struct CardKind {
  std::string name;  // "NVIDIA H200"
  int sm = 0;        // 90
  int multiprocessors = 0;
  friend bool operator==(const CardKind&, const CardKind&) = default;
};

// Which build wrote the table. Version and git id are told, the other two must be this build's.
struct TableBuild {
  std::string version;
  std::string git;
  uint64_t numerics_version = 0;
  int launch_version = 0;
};
TableBuild ThisBuild();

struct KernelEntry {
  Choice choice;
  std::optional<double> us_p50;     // none: derived, not measured
  std::optional<Choice> runner_up;  // the fastest of the other candidates
  // How much longer that took; negative when a smaller configuration won within the noise.
  std::optional<double> us_gap_pct;
};

struct KernelTable {
  CardKind card;
  std::optional<std::string> driver;  // none: nothing was measured
  std::optional<int64_t> sm_clock_mhz, memory_clock_mhz;
  TableBuild build;
  std::map<KernelKey, KernelEntry> entries;

  const KernelEntry* Find(const KernelKey& key) const;
  bool is_measured() const { return driver.has_value(); }
  // As a file holds it, with a line break at its end.
  std::string ToText() const;
};

// Every field is checked, also against its key. `where` names the text in errors. Errors:
// kInvalidArgument.
absl::StatusOr<KernelTable> ParseKernelTable(std::string_view text, const std::string& where);

// A file of at most 4 MiB. Errors: kDataLoss when it cannot be read, else as above.
absl::StatusOr<KernelTable> ReadKernelTable(const std::string& path);

// Errors: kUnavailable for a table of another card or another build.
absl::Status CheckCard(const KernelTable& table, const CardKind& card);
absl::Status CheckBuild(const KernelTable& table);

// `addition` over `base`: its entries win, its card must be equal, its build and clocks are taken.
// Errors: kInvalidArgument when card or build differ, or when all-reduces of two protocols meet.
absl::StatusOr<KernelTable> Merge(const KernelTable& base, const KernelTable& addition);

}  // namespace tp2::tuning
