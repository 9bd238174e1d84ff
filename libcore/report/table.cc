#include "libcore/report/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "libcore/base/check.h"

namespace tp2 {

void Table::AddRow(std::vector<std::string> cells) {
  TP2_CHECK(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Render() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = std::max(columns_[i].name.size(), columns_[i].unit.size());
    for (const auto& row : rows_) width = std::max(width, row[i].size());
    widths.push_back(width);
  }
  const auto line = [&](const char* begin, auto cell_of) {
    std::string text = begin;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      text += "  " + std::string(widths[i] - cell.size(), ' ') + cell;
    }
    return text + "\n";
  };
  std::string text = line("#", [&](size_t i) -> const std::string& { return columns_[i].name; });
  text += line("#", [&](size_t i) -> const std::string& { return columns_[i].unit; });
  for (const auto& row : rows_) {
    text += line(" ", [&](size_t i) -> const std::string& { return row[i]; });
  }
  return text;
}

std::string FormatMs(double ms) {
  return ms < 100    ? absl::StrFormat("%.2f", ms)
         : ms < 1000 ? absl::StrFormat("%.1f", ms)
                     : absl::StrFormat("%.0f", ms);
}

}  // namespace tp2
