// Every tool that computes, asked for CUDA where no card can be used: one line that says so, and
// exit code 3.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/support/run_tool.h"

namespace tp2 {
namespace {

ToolOutcome RunWithoutCards(const std::string& tool, const std::string& arguments) {
  HideCards();
  return RunTool(tool, arguments, ToolOutput::kErrors);
}

class NoCard : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tp2.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    ASSERT_EQ(
        RunWithoutCards("dspark-pack", "synth --shape tiny --seed 1 --out " + dir_ + "/tiny").code,
        0);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string dir_;
};

TEST_F(NoCard, EveryToolSaysSoInOneLineAndExitsThree) {
  const std::string cuda = " --backend cuda --model " + dir_ + "/tiny";
  const std::string capture = " --capture " TP2_SOURCE_DIR "/tests/golden/capture-tiny";
  for (const std::string& arguments :
       {"tp2-bench one-card" + cuda, "tp2-bench emulated" + cuda, "tp2-parity self" + cuda,
        "tp2-parity self --grid --eager" + cuda, "tp2-parity run" + cuda + capture,
        "tp2-parity explain --round 1" + cuda + capture, "dspark-selftest contract" + cuda,
        "dspark-serve" + cuda}) {
    const std::string tool = arguments.substr(0, arguments.find(' '));
    const ToolOutcome outcome = RunWithoutCards(tool, arguments.substr(tool.size()));
    EXPECT_EQ(outcome.code, 3) << arguments << "\n" << outcome.text;
    const size_t line = outcome.text.rfind(tool + ": error: no usable GPU: ");
    ASSERT_NE(line, std::string::npos) << arguments << "\n" << outcome.text;
    EXPECT_EQ(std::count(outcome.text.begin() + line, outcome.text.end(), '\n'), 1) << outcome.text;
    // dspark-serve also times its phases; nobody else says more.
    if (tool != "dspark-serve") {
      EXPECT_EQ(line, 0u) << outcome.text;
    }
  }
}

TEST_F(NoCard, AutoComputesOnTheCpu) {
  EXPECT_EQ(RunWithoutCards("tp2-parity", "self --rounds 1 --model " + dir_ + "/tiny").code, 0);
}

}  // namespace
}  // namespace tp2
