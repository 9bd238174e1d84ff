#include "libcore/report/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "libcore/base/check.h"

namespace tp2 {
namespace {

// `begin`, then the cells, right-aligned.
std::string Line(const char* begin, const std::vector<std::string>& cells,
                 const std::vector<size_t>& widths) {
  std::string text = begin;
  for (size_t i = 0; i < cells.size(); ++i) {
    const size_t gap = widths[i] - std::min(widths[i], cells[i].size());
    text += "  " + std::string(gap, ' ') + cells[i];
  }
  return text + "\n";
}

std::string HeaderLines(const std::vector<TableColumn>& columns,
                        const std::vector<size_t>& widths) {
  std::vector<std::string> names, units;
  for (const TableColumn& column : columns) {
    names.push_back(column.name);
    units.push_back(column.unit);
  }
  return Line("#", names, widths) + Line("#", units, widths);
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  TP2_CHECK(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<size_t> Table::HeaderWidths() const {
  std::vector<size_t> widths;
  for (const TableColumn& column : columns_) {
    widths.push_back(std::max(
        {column.name.size(), column.unit.size(), static_cast<size_t>(std::max(column.width, 0))}));
  }
  return widths;
}

std::string Table::Render() const {
  std::vector<size_t> widths = HeaderWidths();
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text = HeaderLines(columns_, widths);
  for (const auto& row : rows_) text += Line(" ", row, widths);
  return text;
}

std::string Table::HeaderText() const { return HeaderLines(columns_, HeaderWidths()); }

std::string Table::RowText(const std::vector<std::string>& cells) const {
  TP2_CHECK(cells.size() == columns_.size());
  return Line(" ", cells, HeaderWidths());
}

std::string FormatUs(double us) {
  return us < 1000 ? absl::StrFormat("%.1f", us) : absl::StrFormat("%.0f", us);
}

std::string FormatMs(double ms) {
  return ms < 10     ? absl::StrFormat("%.3f", ms)
         : ms < 100  ? absl::StrFormat("%.2f", ms)
         : ms < 1000 ? absl::StrFormat("%.1f", ms)
                     : absl::StrFormat("%.0f", ms);
}

}  // namespace tp2
