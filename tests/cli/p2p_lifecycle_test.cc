// p2p-lifecycle where no card can be used: the list works, a run says so in one line.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/support/run_tool.h"

namespace tp2 {
namespace {

ToolOutcome RunWithoutCards(const std::string& arguments) {
  HideCards();
  return RunTool("p2p-lifecycle", arguments);
}

TEST(P2pLifecycle, ListsItsCasesWithoutACard) {
  const ToolOutcome outcome = RunWithoutCards("--list");
  EXPECT_EQ(outcome.code, 0);
  for (const char* name : {"drop-line", "kill-peer", "legacy-capture", "soak", "scope-mutant"}) {
    EXPECT_NE(outcome.text.find(std::string("\n") + name + " "), std::string::npos) << name;
  }
}

TEST(P2pLifecycle, ARunWithoutACardIsOneLineAndExitsThree) {
  for (const char* arguments : {"", "--full", "--single-card --case soak", "probe"}) {
    const ToolOutcome outcome = RunWithoutCards(arguments);
    EXPECT_EQ(outcome.code, 3) << arguments;
    EXPECT_EQ(outcome.text.rfind("p2p-lifecycle: error: cards: expected at least ", 0), 0u)
        << outcome.text;
    EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 1) << outcome.text;
  }
}

}  // namespace
}  // namespace tp2
