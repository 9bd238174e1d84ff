// The built dspark-pack, as a user runs it: exit codes, the one-line errors and the last lines.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/support/run_tool.h"

namespace {

using tp2::ToolOutcome;

ToolOutcome RunPack(const std::string& arguments) { return tp2::RunTool("dspark-pack", arguments); }

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

TEST_F(DsparkPack, SynthesizesInspectsAndVerifies) {
  const std::string tiny = dir_ + "/tiny";
  const ToolOutcome synth = RunPack("synth --shape tiny --out " + tiny);
  EXPECT_EQ(synth.code, 0) << synth.text;
  const ToolOutcome verify = RunPack("verify " + tiny);
  EXPECT_EQ(verify.code, 0) << verify.text;
  EXPECT_TRUE(
      verify.Has("identity 55c6fe9a3b2cc904f4eb5ddf038fd3f91f9712810b6dd81ae956744f90ef883d\nok\n"))
      << verify.text;
  const ToolOutcome inspect = RunPack("inspect " + tiny);
  EXPECT_EQ(inspect.code, 0);
  EXPECT_TRUE(inspect.Has("mtp.*.ffn.experts.*.w1")) << inspect.text;
  EXPECT_TRUE(inspect.Has("256x1280")) << inspect.text;
  const ToolOutcome json = RunPack("inspect " + tiny + " --json -");
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
  const ToolOutcome dry = RunPack("synth --shape v4-pro --dry-run --out " + dir_ + "/pro");
  EXPECT_EQ(dry.code, 0) << dry.text;
  EXPECT_TRUE(dry.Has("would write v4-pro")) << dry.text;
  EXPECT_TRUE(std::filesystem::is_empty(dir_));
}

TEST_F(DsparkPack, TellsAFailedCheckFromBadInput) {
  const std::string tiny = dir_ + "/tiny";
  EXPECT_EQ(RunPack("synth --shape tiny --out " + tiny).code, 0);
  EXPECT_EQ(RunPack("verify " + tiny + " --identity 00").code, 1);
  std::filesystem::resize_file(tiny + "/model.safetensors", 1000);
  const ToolOutcome cut = RunPack("verify " + tiny);
  EXPECT_EQ(cut.code, 2);
  EXPECT_TRUE(cut.Has("dspark-pack: error: safetensors header: expected")) << cut.text;
}

TEST_F(DsparkPack, BadFlagsExitWithTwoAndAHint) {
  const ToolOutcome flag = RunPack("synth --shap tiny --out " + dir_ + "/x");
  EXPECT_EQ(flag.code, 2);
  EXPECT_TRUE(flag.Has("did you mean --shape for --shap?")) << flag.text;
  const ToolOutcome command = RunPack("verfy x");
  EXPECT_EQ(command.code, 2);
  EXPECT_TRUE(command.Has("did you mean verify?")) << command.text;
  EXPECT_EQ(RunPack("").code, 2);
  EXPECT_EQ(RunPack("synth --shape huge --out " + dir_ + "/x").code, 2);
  EXPECT_EQ(RunPack("synth --shape tiny --seed -1 --out " + dir_ + "/x").code, 2);
}

TEST_F(DsparkPack, HelpAndVersionExitWithZero) {
  for (const char* arguments : {"--help", "synth --help", "inspect --help", "verify --help"}) {
    const ToolOutcome help = RunPack(arguments);
    EXPECT_EQ(help.code, 0) << arguments;
    EXPECT_TRUE(help.Has("Exit codes:")) << help.text;
    EXPECT_LE(std::count(help.text.begin(), help.text.end(), '\n'), 48) << "more than a screen";
  }
  EXPECT_EQ(RunPack("--version").text.rfind("dspark-pack ", 0), 0u);
}

}  // namespace
