// The built dspark-pack, as a user runs it: exit codes, the one-line errors and the last lines.
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
  std::string text;  // stdout, then stderr as it came
};

Outcome RunPack(const std::string& arguments) {
  const std::string command = TP2_BIN_DIR "/dspark-pack " + arguments + " 2>&1";
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

class DsparkPack : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tp2.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string dir_;
};

bool Has(const Outcome& outcome, const std::string& part) {
  return outcome.text.find(part) != std::string::npos;
}

TEST_F(DsparkPack, SynthesizesInspectsAndVerifies) {
  const std::string tiny = dir_ + "/tiny";
  const Outcome synth = RunPack("synth --shape tiny --out " + tiny);
  EXPECT_EQ(synth.code, 0) << synth.text;
  const Outcome verify = RunPack("verify " + tiny);
  EXPECT_EQ(verify.code, 0) << verify.text;
  EXPECT_TRUE(Has(
      verify, "identity 55c6fe9a3b2cc904f4eb5ddf038fd3f91f9712810b6dd81ae956744f90ef883d\nok\n"))
      << verify.text;
  const Outcome inspect = RunPack("inspect " + tiny);
  EXPECT_EQ(inspect.code, 0);
  EXPECT_TRUE(Has(inspect, "mtp.*.ffn.experts.*.w1")) << inspect.text;
  EXPECT_TRUE(Has(inspect, "256x1280")) << inspect.text;
  const Outcome json = RunPack("inspect " + tiny + " --json -");
  EXPECT_EQ(json.code, 0);
  EXPECT_EQ(json.text.front(), '{');
}

TEST_F(DsparkPack, RefusesToOverwriteWithoutForce) {
  const std::string tiny = dir_ + "/tiny";
  EXPECT_EQ(RunPack("synth --shape tiny --out " + tiny).code, 0);
  EXPECT_EQ(RunPack("synth --shape tiny --out " + tiny).code, 2);
  EXPECT_EQ(RunPack("synth --shape tiny --out " + tiny + " --force").code, 0);
}

TEST_F(DsparkPack, ADryRunWritesNothing) {
  const Outcome dry = RunPack("synth --shape v4-pro --dry-run --out " + dir_ + "/pro");
  EXPECT_EQ(dry.code, 0) << dry.text;
  EXPECT_TRUE(Has(dry, "would write v4-pro")) << dry.text;
  EXPECT_TRUE(std::filesystem::is_empty(dir_));
}

TEST_F(DsparkPack, TellsAFailedCheckFromBadInput) {
  const std::string tiny = dir_ + "/tiny";
  EXPECT_EQ(RunPack("synth --shape tiny --out " + tiny).code, 0);
  EXPECT_EQ(RunPack("verify " + tiny + " --identity 00").code, 1);
  std::filesystem::resize_file(tiny + "/model.safetensors", 1000);
  const Outcome cut = RunPack("verify " + tiny);
  EXPECT_EQ(cut.code, 2);
  EXPECT_TRUE(Has(cut, "dspark-pack: error: safetensors header: expected")) << cut.text;
}

TEST_F(DsparkPack, BadFlagsExitWithTwoAndAHint) {
  const Outcome flag = RunPack("synth --shap tiny --out " + dir_ + "/x");
  EXPECT_EQ(flag.code, 2);
  EXPECT_TRUE(Has(flag, "did you mean --shape for --shap?")) << flag.text;
  const Outcome command = RunPack("verfy x");
  EXPECT_EQ(command.code, 2);
  EXPECT_TRUE(Has(command, "did you mean verify?")) << command.text;
  EXPECT_EQ(RunPack("").code, 2);
  EXPECT_EQ(RunPack("synth --shape huge --out " + dir_ + "/x").code, 2);
  EXPECT_EQ(RunPack("synth --shape tiny --seed -1 --out " + dir_ + "/x").code, 2);
}

TEST_F(DsparkPack, HelpAndVersionExitWithZero) {
  for (const char* arguments : {"--help", "synth --help", "inspect --help", "verify --help"}) {
    const Outcome help = RunPack(arguments);
    EXPECT_EQ(help.code, 0) << arguments;
    EXPECT_TRUE(Has(help, "Exit codes:")) << help.text;
    EXPECT_LE(std::count(help.text.begin(), help.text.end(), '\n'), 48) << "more than a screen";
  }
  EXPECT_EQ(RunPack("--version").text.rfind("dspark-pack ", 0), 0u);
}

}  // namespace
