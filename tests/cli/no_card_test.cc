// Every tool that computes, asked for CUDA where no card can be used: one line that says so, and
// exit code 3.
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <string>

namespace {

struct Outcome {
  int code = -1;
  std::string errors;  // stderr
};

Outcome RunTool(const std::string& arguments) {
  // No card is visible, whatever the machine has.
  const std::string command =
      "CUDA_VISIBLE_DEVICES= " TP2_BIN_DIR "/" + arguments + " 2>&1 >/dev/null";
  Outcome outcome;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (size_t got = 0; (got = ::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    outcome.errors.append(buffer, got);
  }
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

class NoCard : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tp2.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    ASSERT_EQ(RunTool("dspark-pack synth --shape tiny --seed 1 --out " + dir_ + "/tiny").code, 0);
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
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.code, 3) << arguments << "\n" << outcome.errors;
    const std::string tool = arguments.substr(0, arguments.find(' '));
    const size_t line = outcome.errors.rfind(tool + ": error: no usable GPU: ");
    ASSERT_NE(line, std::string::npos) << arguments << "\n" << outcome.errors;
    EXPECT_EQ(std::count(outcome.errors.begin() + line, outcome.errors.end(), '\n'), 1)
        << outcome.errors;
    // dspark-serve also times its phases; nobody else says more.
    if (tool != "dspark-serve") {
      EXPECT_EQ(line, 0u) << outcome.errors;
    }
  }
}

TEST_F(NoCard, AutoComputesOnTheCpu) {
  EXPECT_EQ(RunTool("tp2-parity self --rounds 1 --model " + dir_ + "/tiny").code, 0);
}

}  // namespace
