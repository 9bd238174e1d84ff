// Tables for people and for awk: everything that is not data begins with `#`; a name line and a
// unit line over right-aligned columns.
#pragma once

#include <string>
#include <vector>

namespace tp2 {

struct TableColumn {
  std::string name;  // "p50"
  std::string unit;  // "(ms)"; may be empty
  int width = 0;     // at least so wide
};

class Table {
 public:
  explicit Table(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

  // One cell per column.
  void AddRow(std::vector<std::string> cells);

  // Header and rows; columns are as wide as their widest cell.
  std::string Render() const;

  // For rows that are printed as they come: the two header lines, and one row below them. A cell
  // that is wider than its column's header and width pushes the rest of its row.
  std::string HeaderText() const;
  std::string RowText(const std::vector<std::string>& cells) const;

 private:
  std::vector<size_t> HeaderWidths() const;

  std::vector<TableColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Three decimals below 10, two below 100, one below 1000, none above: no more digits than a time in
// ms deserves.
std::string FormatMs(double ms);

// One decimal below 1000 microseconds, none above.
std::string FormatUs(double us);

}  // namespace tp2
