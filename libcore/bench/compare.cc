#include "libcore/bench/compare.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/result.h"

namespace tp2::bench {
namespace {

// What must be equal for a ratio to mean anything; a path through the document.
struct Field {
  const char* name;
  const char* pointer;
};
constexpr Field kFields[] = {
    {"command", "/command"},
    {"backend", "/backend"},
    {"card", "/conditions/card/name"},
    {"model", "/model/identity"},
    {"numerics version", "/model/numerics_version"},
    {"kernel table", "/kernel_table/digest"},
    {"cold L2", "/measurement/cold_l2"},
    {"eager", "/measurement/eager"},
    {"margins", "/measurement/margins"},
    {"context", "/measurement/context"},
    {"slots", "/measurement/slots"},
};

absl::Status Malformed(const char* which, const std::string& expected, const std::string& got) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = absl::StrCat(which, " file"),
                    .expected = expected,
                    .got = got,
                    .where = "",
                    .next = "compare two results that tp2-bench wrote"});
}

// The value as text; "none" when it is absent or null.
std::string TextAt(const Json& document, const char* pointer) {
  const Json::json_pointer path(pointer);
  if (!document.contains(path) || document[path].is_null()) return "none";
  const Json& value = document[path];
  return value.is_string() ? value.get<std::string>() : value.dump();
}

absl::Status CheckDocument(const char* which, const Json& document) {
  const std::string schema = document.is_object() ? TextAt(document, "/schema") : "none";
  if (schema != kSchema) return Malformed(which, absl::StrCat("schema ", kSchema), schema);
  if (document.value("complete", Json(false)) != Json(true)) {
    return Malformed(which, "a complete run", "one that was interrupted");
  }
  if (!document.contains("cells") || !document["cells"].is_array() || document["cells"].empty()) {
    return Malformed(which, "timed cells", "none");
  }
  for (const Json& cell : document["cells"]) {
    const bool is_cell = cell.is_object() && cell.contains("cell") && cell["cell"].is_string() &&
                         cell.contains("primary") && cell["primary"].is_string();
    if (!is_cell) return Malformed(which, "cells with an id and a primary series", "others");
  }
  return absl::OkStatus();
}

struct Median {
  double p50_us;
  double mad_us;
};

// Nothing when the cell lacks the series or it is not positive numbers.
std::optional<Median> MedianOf(const Json& cell, const std::string& series) {
  const auto found = cell.find(series);
  if (found == cell.end() || !found->is_object()) return std::nullopt;
  const auto number = [&found](const char* key) {
    return found->contains(key) && (*found)[key].is_number() ? (*found)[key].get<double>() : NAN;
  };
  const Median median = {number("p50"), number("mad")};
  if (!(median.p50_us > 0) || !(median.mad_us >= 0)) return std::nullopt;
  return median;
}

CellComparison CompareCell(const std::string& id, const std::string& series, const Median& before,
                           const Median& after, const CompareOptions& options) {
  CellComparison cell = {.cell = id,
                         .series = series,
                         .before_us = before.p50_us,
                         .after_us = after.p50_us,
                         .noise_us = 3 * std::max(before.mad_us, after.mad_us)};
  const double loss_us = after.p50_us - before.p50_us;
  cell.is_regression =
      loss_us > before.p50_us * options.max_regression_pct / 100 && loss_us > cell.noise_us;
  return cell;
}

absl::Status Refuse(const std::vector<std::string>& differences) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = "comparison",
                    .expected = "two runs that differ in their times only",
                    .got = absl::StrJoin(differences, "; "),
                    .where = "",
                    .next = "give --across to compare all the same"});
}

}  // namespace

bool Comparison::has_regression() const {
  return std::any_of(cells.begin(), cells.end(),
                     [](const CellComparison& cell) { return cell.is_regression; });
}

absl::StatusOr<Comparison> CompareResults(const Json& before, const Json& after,
                                          const CompareOptions& options) {
  TP2_RETURN_IF_ERROR(CheckDocument("first", before));
  TP2_RETURN_IF_ERROR(CheckDocument("second", after));
  Comparison comparison;
  for (const Field& field : kFields) {
    const std::string a = TextAt(before, field.pointer), b = TextAt(after, field.pointer);
    if (a == b) continue;
    comparison.differences.push_back(absl::StrCat(field.name, ": ", a, ", ", b));
  }
  std::map<std::string, const Json*> others;
  for (const Json& cell : after["cells"]) others[cell["cell"].get<std::string>()] = &cell;
  for (const Json& cell : before["cells"]) {
    const auto id = cell["cell"].get<std::string>();
    const auto series = cell["primary"].get<std::string>();
    const auto other = others.find(id);
    std::optional<Median> b;
    if (other != others.end()) b = MedianOf(*other->second, series);
    const std::optional<Median> a = MedianOf(cell, series);
    if (other != others.end()) others.erase(other);
    if (a.has_value() && b.has_value()) {
      comparison.cells.push_back(CompareCell(id, series, *a, *b, options));
    } else {
      comparison.left_out.push_back(absl::StrCat(id, " ", series));
    }
  }
  for (const auto& [id, cell] : others) comparison.left_out.push_back(id);
  if (!comparison.left_out.empty()) {
    comparison.differences.push_back(
        absl::StrCat("not in both: ", absl::StrJoin(comparison.left_out, ", ")));
  }
  if (!comparison.differences.empty() && !options.goes_across) {
    return Refuse(comparison.differences);
  }
  if (comparison.cells.empty()) return Malformed("second", "a cell of the first", "none");
  return comparison;
}

}  // namespace tp2::bench
