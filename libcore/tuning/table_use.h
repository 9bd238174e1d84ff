// What an engine made of a kernel table: small enough for the faces of engines and results.
#pragma once

#include <string>

namespace tp2::tuning {

struct TableUse {
  std::string digest;  // of the file; empty: no table, every launch has its safe default
  int found = 0;       // launch shapes that the table has
  int missing = 0;     // launch shapes that it lacks: safe defaults
};

// "table 0123456789abcdef: 41 launch shapes found, 3 missing (safe defaults)".
std::string Describe(const TableUse& use);

}  // namespace tp2::tuning
