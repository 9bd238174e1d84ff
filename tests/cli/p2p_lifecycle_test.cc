// p2p-lifecycle where no card can be used: the list works, a run says so in one line.
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>

#include <algorithm>
#include <string>

namespace {

struct Outcome {
  int code = -1;
  std::string text;  // both outputs
};

Outcome RunTool(const std::string& arguments) {
  const std::string command =
      "CUDA_VISIBLE_DEVICES= " TP2_BIN_DIR "/p2p-lifecycle " + arguments + " 2>&1";
  Outcome outcome;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (size_t got = 0; (got = ::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    outcome.text.append(buffer, got);
  }
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

TEST(P2pLifecycle, ListsItsCasesWithoutACard) {
  const Outcome outcome = RunTool("--list");
  EXPECT_EQ(outcome.code, 0);
  for (const char* name : {"drop-line", "kill-peer", "legacy-capture", "soak", "scope-mutant"}) {
    EXPECT_NE(outcome.text.find(std::string("\n") + name + " "), std::string::npos) << name;
  }
}

TEST(P2pLifecycle, ARunWithoutACardIsOneLineAndExitsThree) {
  for (const char* arguments : {"", "--full", "--single-card --case soak", "probe"}) {
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.code, 3) << arguments;
    EXPECT_EQ(outcome.text.rfind("p2p-lifecycle: error: cards: expected at least ", 0), 0u)
        << outcome.text;
    EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 1) << outcome.text;
  }
}

}  // namespace
