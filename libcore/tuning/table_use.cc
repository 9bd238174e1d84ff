#include "libcore/tuning/table_use.h"

#include "absl/strings/str_cat.h"

namespace tp2::tuning {

std::string Describe(const TableUse& use) {
  if (use.digest.empty()) return "none: every launch has its safe default";
  return absl::StrCat("table ", use.digest, ": ", use.found, " launch shapes found, ", use.missing,
                      " missing", use.missing > 0 ? " (safe defaults)" : "");
}

}  // namespace tp2::tuning
