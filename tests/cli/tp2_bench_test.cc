// The built tp2-bench on the CPU, as a user runs it. Times are never judged: a noisy machine must
// not fail a test, so every run allows any spread.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "libcore/base/json.h"
#include "tests/support/run_tool.h"
#include "tests/support/temp_model.h"

namespace tp2 {
namespace {

class Tp2Bench : public testing::Test {
 protected:
  // `command` on the tiny model: few calls, any spread allowed.
  ToolOutcome Measure(const std::string& command, const std::string& more) {
    return RunTool("tp2-bench", command + " --model " + model_.dir() +
                                    " --backend cpu --warmup 1 --replays 3 --max-mad-pct 1000 " +
                                    more);
  }
  Json Read(const std::string& name) {
    std::ifstream file(model_.path(name));
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto json = ParseJson(text, name);
    EXPECT_TRUE(json.ok()) << json.status();
    return json.ok() ? *json : Json();
  }
  std::string Path(const std::string& name) { return model_.path(name); }

  TempModel model_{"tiny"};
};

TEST_F(Tp2Bench, GridWritesEveryCellWithItsConditions) {
  const ToolOutcome run = Measure("one-card", "--requests 1,3 --groups --json " + Path("a.json"));
  ASSERT_EQ(run.code, 0) << run.text;
  EXPECT_TRUE(run.Has("one-card    3      5")) << run.text;
  EXPECT_TRUE(run.Has("time per group")) << run.text;
  const Json json = Read("a.json");
  EXPECT_EQ(json["schema"], "tp2-bench/1");
  EXPECT_EQ(json["complete"], true);
  EXPECT_EQ(json["backend"], "cpu");
  EXPECT_EQ(json["model"]["numerics_version"], 1);
  EXPECT_TRUE(json["conditions"]["host"]["load_1min_start"].is_number());
  EXPECT_GT(json["copy_gb_per_s"].get<double>(), 0);
  ASSERT_EQ(json["cells"].size(), 4u);
  for (const Json& cell : json["cells"]) {
    EXPECT_EQ(cell["primary"], "step_host_us");
    EXPECT_EQ(cell["step_host_us"]["count"], 3);
    EXPECT_TRUE(cell["draft_device_us"].is_null());
    EXPECT_GT(cell["groups"]["head"]["bytes"].get<int64_t>(), 0);
    EXPECT_GT(cell["groups"]["experts"]["us"]["p50"].get<double>(), 0);
  }
}

TEST_F(Tp2Bench, SoloMeasuresBothRanksAndEmulatedBothTogether) {
  const ToolOutcome solo = Measure("solo", "--requests 1 --n-out 5 --cold-l2");
  EXPECT_EQ(solo.code, 0) << solo.text;
  EXPECT_TRUE(solo.Has("solo-0") && solo.Has("solo-1") && solo.Has("cold L2")) << solo.text;
  const ToolOutcome emulated = Measure("emulated", "--requests 1 --n-out 5 --insert-rows 6");
  EXPECT_EQ(emulated.code, 0) << emulated.text;
}

TEST_F(Tp2Bench, DraftsAtTheEndOfTheLongestContextFromTheLastSlots) {
  const ToolOutcome far =
      Measure("one-card",
              "--requests 1,2 --n-out 5 --context 1048575 --slots 8 --json " + Path("far.json"));
  EXPECT_EQ(far.code, 0) << far.text;
  EXPECT_EQ(Read("far.json")["measurement"]["context"], 1048575);
  const ToolOutcome few = Measure("one-card", "--requests 1,2 --n-out 5 --slots 1");
  EXPECT_EQ(few.code, 2) << few.text;
  EXPECT_TRUE(few.Has("--slots: expected at least the 2 that draft, got 1")) << few.text;
}

TEST_F(Tp2Bench, InsertGoesByRows) {
  const ToolOutcome run = Measure("insert", "--rows 6,128 --json -");
  ASSERT_EQ(run.code, 0) << run.text;
  const auto json = ParseJson(run.text, "stdout");
  ASSERT_TRUE(json.ok()) << run.text;
  EXPECT_EQ((*json)["cells"][1]["cell"], "insert 128");
}

TEST_F(Tp2Bench, NeverWritesOverAResult) {
  std::ofstream(Path("old.json")) << "kept";
  const ToolOutcome run = Measure("one-card", "--requests 1 --n-out 1 --json " + Path("old.json"));
  EXPECT_EQ(run.code, 2) << run.text;
  EXPECT_FALSE(run.Has("one-card    1")) << "refused before anything was measured";
  std::string text;
  std::ifstream(Path("old.json")) >> text;
  EXPECT_EQ(text, "kept");
}

TEST_F(Tp2Bench, ANoisyCellIsARefusedMeasurement) {
  // No spread at all is allowed, and three host times of a STEP are never all the same nanosecond.
  const ToolOutcome run = RunTool("tp2-bench", "one-card --model " + model_.dir() +
                                                   " --backend cpu --requests 1 --n-out 1"
                                                   " --replays 9 --max-mad-pct 0");
  EXPECT_EQ(run.code, 5) << run.text;
  EXPECT_TRUE(run.Has("noisy")) << run.text;
}

TEST_F(Tp2Bench, CompareTellsARegressionFromAnError) {
  ASSERT_EQ(Measure("one-card", "--requests 1 --n-out 1 --json " + Path("a.json")).code, 0);
  Json slower = Read("a.json");
  Json& times = slower["cells"][0]["step_host_us"];
  times["p50"] = 5 * times["p50"].get<double>() + 5 * times["mad"].get<double>();
  std::ofstream(Path("b.json")) << slower.dump();
  const std::string a = Path("a.json"), b = Path("b.json");
  EXPECT_EQ(RunTool("tp2-bench", "compare " + a + " " + a).code, 0);
  const ToolOutcome slow = RunTool("tp2-bench", "compare " + a + " " + b);
  EXPECT_EQ(slow.code, 1);
  EXPECT_TRUE(slow.Has("slower")) << slow.text;
  EXPECT_EQ(RunTool("tp2-bench", "compare " + a + " " + b + " --max-regression 1000").code, 0);
  slower["command"] = "emulated";
  std::ofstream(Path("c.json")) << slower.dump();
  const ToolOutcome refused = RunTool("tp2-bench", "compare " + a + " " + Path("c.json"));
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(refused.Has("give --across")) << refused.text;
  EXPECT_EQ(RunTool("tp2-bench", "compare " + a + " " + Path("none.json")).code, 2);
}

TEST_F(Tp2Bench, MemoryAndListRunNothing) {
  const ToolOutcome memory = RunTool("tp2-bench", "memory --json - --model " + model_.dir());
  ASSERT_EQ(memory.code, 0) << memory.text;
  const auto json = ParseJson(memory.text, "stdout");
  ASSERT_TRUE(json.ok()) << memory.text;
  EXPECT_EQ((*json)["schema"], "tp2-bench/1");
  EXPECT_GT((*json)["memory"]["one_card_total_bytes"].get<int64_t>(), 0);
  const ToolOutcome list = RunTool("tp2-bench", "list");
  EXPECT_EQ(list.code, 0);
  EXPECT_TRUE(list.Has("# cells") && list.Has("# cards")) << list.text;
}

TEST_F(Tp2Bench, HelpFitsAScreenAndBadFlagsGetAHint) {
  for (const char* command :
       {"", "one-card", "solo", "emulated", "insert", "memory", "list", "compare"}) {
    const ToolOutcome help = RunTool("tp2-bench", std::string(command) + " --help");
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_TRUE(help.Has("Exit codes:")) << help.text;
    EXPECT_LE(std::count(help.text.begin(), help.text.end(), '\n'), 48) << "more than a screen";
  }
  const ToolOutcome bad = RunTool("tp2-bench", "one-card --model x --replay 3");
  EXPECT_EQ(bad.code, 2);
  EXPECT_TRUE(bad.Has("did you mean --replays")) << bad.text;
}

TEST_F(Tp2Bench, AnInterruptedRunWritesWhatIsCompleteAndSaysSo) {
  // Terminated once the first of twenty cells is printed; the shell returns the tool's code.
  const std::string out = Path("out.txt");
  const ToolOutcome run = RunTool(
      "tp2-bench", "one-card --model " + model_.dir() +
                       " --backend cpu --replays 40 --max-mad-pct 1000 --n-out 1,2,3,4,5 --json " +
                       Path("cut.json") + " > " + out + " & pid=$!; for i in $(seq 600); do" +
                       " grep -q 'one-card    1      1' " + out +
                       " && break; sleep 0.1; done; kill -TERM $pid; wait $pid");
  EXPECT_EQ(run.code, 128 + 15) << run.text;
  const Json json = Read("cut.json");
  EXPECT_EQ(json["complete"], false);
  EXPECT_GE(json["cells"].size(), 1u);
  EXPECT_LT(json["cells"].size(), 20u);
}

}  // namespace
}  // namespace tp2
