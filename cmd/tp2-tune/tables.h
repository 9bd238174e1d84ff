// tp2-tune check, show and diff: what a kernel table says. Each gives an exit code.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cmd/tp2-tune/flags.h"
#include "libcore/tuning/kernel_table.h"

namespace tp2::tune {

absl::StatusOr<int> CheckTable(const Flags& flags);
absl::StatusOr<int> ShowTable(const Flags& flags);
absl::StatusOr<int> DiffTables(const Flags& flags);

// The table as people read it.
std::string TableText(const std::string& path, const tuning::KernelTable& table);

}  // namespace tp2::tune
