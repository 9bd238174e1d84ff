// The collectives under a model checker: every rule must hold in all executions that are tried,
// every mutant must fail in one of them. Prints one line per case; exit 1 if any case does not end
// as it must. README.md beside this file says what the cases are.
//
// usage: collectives_model [rules | mutants | NAME]
#include <chrono>
#include <cstdio>
#include <string>

#include "tests/collectives/model/model_case.h"

namespace tp2::coll::model {
namespace {

// Whether the case ended as it must.
bool Check(const Case& item) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = item.run(item.executions);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const bool is_expected =
      item.expected == kHolds ? outcome.verdict == kHolds : (outcome.verdict & item.expected) != 0;
  std::printf("%-6s %-52s %-20s %7lu executions %6.2f s\n", is_expected ? "ok" : "NOT OK",
              item.name, outcome.text, outcome.executions, elapsed.count());
  std::fflush(stdout);
  return is_expected;
}

bool IsWanted(const Case& item, const std::string& wanted) {
  if (wanted == "rules") return item.expected == kHolds;
  if (wanted == "mutants") return item.expected != kHolds;
  return wanted.empty() || wanted == item.name;
}

int Main(const std::string& wanted) {
  int checked = 0;
  int failures = 0;
  for (const std::span<const Case> cases : {LineCases(), AckCases()}) {
    for (const Case& item : cases) {
      if (!IsWanted(item, wanted)) continue;
      ++checked;
      if (!Check(item)) ++failures;
    }
  }
  std::printf("%d cases, %d not as expected\n", checked, failures);
  return checked > 0 && failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tp2::coll::model

int main(int argc, char** argv) { return tp2::coll::model::Main(argc > 1 ? argv[1] : ""); }
