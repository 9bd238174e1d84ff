// The built tp2-tune without a card, as a user runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "libcore/base/json.h"
#include "libcore/model/synthetic_shape.h"
#include "tests/support/run_tool.h"
#include "tests/support/temp_model.h"

namespace tp2 {
namespace {

class Tp2Tune : public testing::Test {
 protected:
  void SetUp() override {
    HideCards();
    const SyntheticShape& full = *FindSyntheticShape("v41-flash");
    std::filesystem::create_directory(Path("full"));
    std::ofstream(Path("full/config.json")) << SyntheticConfigText(full, 1);
  }
  std::string Path(const std::string& name) const { return model_.path(name); }
  std::string Model() const { return " --model " + model_.dir(); }
  std::string FullConfig() const { return " --config-only --model " + Path("full"); }
  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name));
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  // A derived table of the tiny model for the card of --card.
  std::string MakeTable(const std::string& name, const std::string& more) {
    const ToolOutcome plan = RunTool(
        "tp2-tune", "plan" + Model() + " --json " + Path(name) + " " + more, ToolOutput::kErrors);
    EXPECT_EQ(plan.code, 0) << plan.text;
    return Path(name);
  }
  void Edit(const std::string& name, const std::string& pointer, const Json& value) {
    Json json = Json::parse(Read(name));
    json[Json::json_pointer(pointer)] = value;
    std::ofstream(Path(name)) << json.dump();
  }

  TempModel model_{"tiny"};
};

TEST_F(Tp2Tune, PlanNeedsNoCardAndGivesAReasonForWhatItDoesNotTime) {
  const ToolOutcome plan = RunTool("tp2-tune", "plan" + FullConfig());
  EXPECT_EQ(plan.code, 0) << plan.text;
  EXPECT_TRUE(plan.Has("# tp2-tune plan  NVIDIA H200  sm_90  132 SM")) << plan.text;
  EXPECT_TRUE(plan.Has("  time   splits=4\n"));
  EXPECT_TRUE(plan.Has("  time   protocol=line blocks=67 threads=128\n"));
  EXPECT_TRUE(plan.Has("  prune  splits=21 and more: parts of fewer than 256 inputs\n"));
  EXPECT_TRUE(plan.Has("no choice\n  prune  splits=2 and more: partial sums of 129280 outputs"));
  const ToolOutcome one =
      RunTool("tp2-tune", "plan --only product/K6 --tp 2 --card rtx3090" + FullConfig());
  EXPECT_EQ(one.code, 0) << one.text;
  EXPECT_TRUE(one.Has("82 SM") && one.Has("head") && !one.Has("wq_b")) << one.text;
}

TEST_F(Tp2Tune, RunWithoutACardSaysSoInOneLineAndLeavesNothing) {
  const ToolOutcome run =
      RunTool("tp2-tune", "run" + Model() + " --json " + Path("t.json"), ToolOutput::kErrors);
  EXPECT_EQ(run.code, 3) << run.text;
  EXPECT_EQ(run.text.rfind("tp2-tune: error: no usable GPU: ", 0), 0u) << run.text;
  EXPECT_EQ(std::count(run.text.begin(), run.text.end(), '\n'), 1) << run.text;
  for (const auto& entry : std::filesystem::directory_iterator(Path(""))) {
    EXPECT_TRUE(entry.path().filename() == "model" || entry.path().filename() == "full")
        << entry.path();
  }
}

TEST_F(Tp2Tune, RunNeverWritesOverATableUnlessItMerges) {
  MakeTable("t.json", "--card h200");
  const std::string before = Read("t.json");
  const ToolOutcome run = RunTool("tp2-tune", "run" + Model() + " --json " + Path("t.json"));
  EXPECT_EQ(run.code, 2) << run.text;
  EXPECT_TRUE(run.Has("an existing file")) << run.text;
  EXPECT_EQ(Read("t.json"), before);
  std::ofstream(Path("bad.json")) << "{}";
  EXPECT_EQ(RunTool("tp2-tune", "run" + Model() + " --merge --json " + Path("bad.json")).code, 2);
  EXPECT_EQ(RunTool("tp2-tune", "run" + Model() + " --merge --json " + Path("t.json")).code, 3)
      << "the table is fine, the card is missing";
  EXPECT_EQ(Read("t.json"), before);
}

TEST_F(Tp2Tune, CheckTellsWhatIsMissingFromWhatDoesNotFit) {
  const std::string table = MakeTable("t.json", "--card h200 --tp 1");
  const auto check = [&](const std::string& more) {
    return RunTool("tp2-tune", "check " + table + Model() + " " + more);
  };
  EXPECT_EQ(check("--card h200").code, 0) << check("--card h200").text;
  EXPECT_TRUE(check("--card h200").Has("; covered\n"));
  const ToolOutcome cardless = check("");
  EXPECT_EQ(cardless.code, 0) << cardless.text;
  EXPECT_TRUE(cardless.Has("held against none")) << cardless.text;
  const ToolOutcome pair = check("--card h200 --tp 1,2");
  EXPECT_EQ(pair.code, 1) << pair.text;
  EXPECT_TRUE(pair.Has("missing  all_reduce/w1280\n") && pair.Has("not covered")) << pair.text;
  const ToolOutcome other = check("--card rtx3090");
  EXPECT_EQ(other.code, 3) << other.text;
  EXPECT_TRUE(other.Has("kernel table of another card: expected NVIDIA GeForce RTX 3090"));
  Edit("t.json", "/build/launch_version", 99);
  EXPECT_EQ(check("--card h200").code, 3);
  Edit("t.json", "/entries/0/choice/splits", 1000);
  EXPECT_EQ(check("--card h200").code, 2);
  EXPECT_EQ(RunTool("tp2-tune", "check " + Path("none.json") + Model()).code, 2);
}

TEST_F(Tp2Tune, ShowSaysThatADerivedTableWasNotMeasured) {
  const ToolOutcome show = RunTool("tp2-tune", "show " + MakeTable("t.json", "--card rtx3090"));
  EXPECT_EQ(show.code, 0) << show.text;
  EXPECT_TRUE(show.Has("derived from the card's capability, not measured")) << show.text;
  EXPECT_TRUE(show.Has("product/K6/k256/b10/r8")) << show.text;
}

TEST_F(Tp2Tune, DiffListsChoicesThatChangeAndByHowMuch) {
  const std::string a = MakeTable("a.json", "--card h200"), b = MakeTable("b.json", "--card h200");
  EXPECT_TRUE(RunTool("tp2-tune", "diff " + a + " " + b).Has("# 0 of "));
  // main_proj of tiny has 768 inputs: three parts at most.
  Json json = Json::parse(Read("b.json"));
  for (Json& entry : json["entries"]) {
    if (entry["op"] == "product" && entry["k"] == 768) entry["choice"]["splits"] = 2;
  }
  std::ofstream(Path("b.json")) << json.dump();
  const ToolOutcome diff = RunTool("tp2-tune", "diff " + a + " " + b);
  EXPECT_EQ(diff.code, 0) << diff.text;
  EXPECT_TRUE(diff.Has("splits=3") && diff.Has("splits=2") && !diff.Has("# 0 of")) << diff.text;
}

// Every tool takes a table; on the CPU it must be sound, and changes nothing.
TEST_F(Tp2Tune, OtherToolsTakeTheTableAndRefuseABadOne) {
  const std::string table = MakeTable("t.json", "--card h200");
  const std::string self = "self --backend cpu --rounds 2" + Model();
  const ToolOutcome without = RunTool("tp2-parity", self);
  const ToolOutcome with = RunTool("tp2-parity", self + " --kernels " + table);
  EXPECT_EQ(with.code, 0) << with.text;
  EXPECT_EQ(with.text, without.text);
  EXPECT_EQ(RunTool("tp2-bench",
                    "one-card --backend cpu --requests 1 --n-out 1 --replays 2"
                    " --max-mad-pct 1000 --kernels " +
                        table + Model())
                .code,
            0);
  std::ofstream(Path("bad.json")) << "{}";
  EXPECT_EQ(RunTool("tp2-parity", self + " --kernels " + Path("bad.json")).code, 2);
  EXPECT_EQ(RunTool("dspark-serve", "--backend cpu --listen 127.0.0.1:0 --admin off --kernels " +
                                        Path("bad.json") + Model())
                .code,
            2);
}

TEST_F(Tp2Tune, HelpFitsAScreenAndBadFlagsGetAHint) {
  for (const char* command : {"", "plan", "run", "check", "show", "diff"}) {
    const ToolOutcome help = RunTool("tp2-tune", std::string(command) + " --help");
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_TRUE(help.Has("Exit codes:")) << help.text;
    EXPECT_LE(std::count(help.text.begin(), help.text.end(), '\n'), 48) << "more than a screen";
  }
  const ToolOutcome bad = RunTool("tp2-tune", "run --model x --replay 3 --json y");
  EXPECT_EQ(bad.code, 2);
  EXPECT_TRUE(bad.Has("did you mean --replays")) << bad.text;
  EXPECT_EQ(RunTool("tp2-tune", "plan --card h100" + Model()).code, 2);
}

}  // namespace
}  // namespace tp2
