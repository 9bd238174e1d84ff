// Tables for people and for awk: everything that is not data begins with `#`; a name line and a
// unit line over right-aligned columns.
#pragma once

#include <string>
#include <vector>

namespace tp2 {

struct TableColumn {
  std::string name;  // "p50"
  std::string unit;  // "(ms)"; may be empty
};

class Table {
 public:
  explicit Table(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

  // One cell per column.
  void AddRow(std::vector<std::string> cells);

  // Header and rows; columns are as wide as their widest cell.
  std::string Render() const;

 private:
  std::vector<TableColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Two decimals below 100, one below 1000, none above: no more digits than a time in ms deserves.
std::string FormatMs(double ms);

}  // namespace tp2
