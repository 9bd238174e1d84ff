// A comparison for people, for machines and for CI systems.
#pragma once

#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/parity/compare.h"

namespace tp2 {

struct CompareReport {
  std::string mode;
  std::string mutation;  // empty: none
  std::string capture_dir;
  EngineInfo engine;
  CaptureInfo capture;
  std::vector<WindowResult> windows;

  bool has_passed() const;
};

std::string CompareText(const CompareReport& report);
// Schema tp2-parity/1.
Json CompareJson(const CompareReport& report);
// JUnit: one suite per window, one test per verdict kind and check.
std::string CompareJUnit(const CompareReport& report);

}  // namespace tp2
