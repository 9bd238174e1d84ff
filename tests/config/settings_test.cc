// Where settings come from, who wins, and what is refused where.
#include "libcore/config/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "libcore/config/env.h"
#include "libcore/config/worker_config.h"
#include "libcore/config/yaml_config.h"

namespace tp2::config {
namespace {

std::string YamlError(std::string_view text) {
  const auto values = ParseYamlSettings(text, "w.yaml", WorkerSettings());
  return values.ok() ? "" : std::string(values.status().message());
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(YamlSettings, ReadsScalarsAndLists) {
  const auto values = ParseYamlSettings(
      "model: /srv/drafter  # comment\nmax_model_len: 4096\nlisten: \"127.0.0.1:0\"\n"
      "gpus: [GPU-c4e7a371, GPU-7744b44b]\n",
      "w.yaml", WorkerSettings());
  ASSERT_TRUE(values.ok()) << values.status();
  ASSERT_EQ(values->size(), 4u);
  EXPECT_EQ((*values)[1].name, "max-model-len");
  EXPECT_EQ((*values)[1].text, "4096");
  EXPECT_EQ((*values)[1].where, "w.yaml:2");
  EXPECT_EQ((*values)[3].text, "GPU-c4e7a371,GPU-7744b44b");
}

TEST(YamlSettings, AnEmptyFileSetsNothing) {
  EXPECT_EQ(YamlError(""), "");
  EXPECT_EQ(YamlError("# only a comment\n"), "");
}

TEST(YamlSettings, RefusesUnknownKeysWithTheirLine) {
  EXPECT_SAYS(YamlError("tp: 1\nmodle: x\n"), "got 'modle' (w.yaml:2:1)");
  EXPECT_SAYS(YamlError("max-model-len: 4096\n"), "got 'max-model-len' (w.yaml:1:1)");
}

TEST(YamlSettings, RefusesDuplicateKeysWithBothLines) {
  const std::string error = YamlError("tp: 1\nmodel: x\ntp: 2\n");
  EXPECT_SAYS(error, "'tp' again, first at w.yaml:1");
  EXPECT_SAYS(error, "w.yaml:3:1");
}

TEST(YamlSettings, RefusesWhatIsNotAFlatMapOfScalars) {
  EXPECT_SAYS(YamlError("just text"), "got 'just text'");
  EXPECT_SAYS(YamlError("- a\n"), "got a list");
  EXPECT_SAYS(YamlError("tp: {a: 1}\n"), "got a map");
  EXPECT_SAYS(YamlError("tp: [1]\n"), "got a list");
  EXPECT_SAYS(YamlError("gpus: [[a]]\n"), "got a list");
  EXPECT_SAYS(YamlError("tp:\n"), "got nothing");
  EXPECT_SAYS(YamlError("tp: &a 1\n"), "got an anchor");
  EXPECT_SAYS(YamlError("tp: &a 1\nthreads: *a\n"), "got an anchor");
  EXPECT_SAYS(YamlError("tp: !!int 1\n"), "got the tag");
  EXPECT_SAYS(YamlError("tp: 1\n---\ntp: 1\n"), "got another one");
  EXPECT_SAYS(YamlError("model: a: b\n"), "expected YAML");
  EXPECT_NE(YamlError(std::string(20'000, '[')), "");
}

TEST(Settings, PrefersFlagThenEnvironmentThenFileThenDefault) {
  std::vector<GivenValue> given = {
      {.name = "timeout-ms", .text = "4", .origin = Origin::kFlag, .where = "--timeout-ms"},
      {.name = "timeout-ms", .text = "3", .origin = Origin::kEnvironment, .where = "E"},
      {.name = "timeout-ms", .text = "2", .origin = Origin::kFile, .where = "F"}};
  for (const int64_t expected : {4, 3, 2}) {
    EXPECT_EQ(Settings::Merge(WorkerSettings(), given)->Integer("timeout-ms"), expected);
    given.erase(given.begin());
  }
  EXPECT_EQ(Settings::Merge(WorkerSettings(), given)->Integer("timeout-ms"), 2000);
}

TEST(Settings, ChecksValuesThatAreOutranked) {
  const std::vector<GivenValue> given = {
      {.name = "tp", .text = "1", .origin = Origin::kFlag, .where = "--tp"},
      {.name = "tp", .text = "3", .origin = Origin::kFile, .where = "w.yaml:9"}};
  const auto settings = Settings::Merge(WorkerSettings(), given);
  ASSERT_FALSE(settings.ok());
  EXPECT_SAYS(std::string(settings.status().message()),
              "tp: expected an integer from 1 to 2, got '3' (w.yaml:9)");
}

TEST(Settings, TakesValuesAtTheirLimitsOnly) {
  const SettingSpec* length = FindSpec(WorkerSettings(), "max-model-len");
  for (const char* good : {"256", "1048576"}) EXPECT_TRUE(CheckValue(*length, good, "").ok());
  for (const char* bad :
       {"255", "1048577", "0400", "4096x", "", "-1", "1e3", "99999999999999999999"}) {
    EXPECT_FALSE(CheckValue(*length, bad, "").ok()) << bad;
  }
  const SettingSpec* fuse = FindSpec(WorkerSettings(), "fuse-pairs");
  EXPECT_TRUE(CheckValue(*fuse, "true", "").ok());
  EXPECT_FALSE(CheckValue(*fuse, "yes", "").ok());
  const SettingSpec* backend = FindSpec(WorkerSettings(), "backend");
  EXPECT_TRUE(CheckValue(*backend, "cpu", "").ok());
  EXPECT_FALSE(CheckValue(*backend, "cp", "").ok());
  const SettingSpec* gpus = FindSpec(WorkerSettings(), "gpus");
  for (const char* good : {"", "GPU-c4e7a371", "c4e7a371,7744b44b"}) {
    EXPECT_TRUE(CheckValue(*gpus, good, "").ok()) << good;
  }
  for (const char* bad : {"0", "GPU-c4e7a37", "a0a0a0a0,b0b0b0b0,c0c0c0c0", "GPU-c4e7a37z"}) {
    EXPECT_FALSE(CheckValue(*gpus, bad, "").ok()) << bad;
  }
}

TEST(Settings, DescribesEveryValueWithItsOrigin) {
  const std::vector<GivenValue> given = {
      {.name = "tp", .text = "2", .origin = Origin::kEnvironment, .where = "DSPARK_WORKER_TP"}};
  const std::string text = Settings::Merge(WorkerSettings(), given)->Describe();
  EXPECT_SAYS(text, "# environment DSPARK_WORKER_TP\n");
  EXPECT_SAYS(text, "# default\n");
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')),
            WorkerSettings().size());
}

TEST(Environment, NamesOfTheSpecificationSetFlagDefaults) {
  ::setenv("DSPARK_WORKER_TP", "2", 1);
  ::setenv("DSPARK_TP_TIMEOUT_MS", "750", 1);
  ::setenv("DSPARK_TP_FUSE_PAIRS", "0", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", "GPU-c4e7a371,GPU-7744b44b", 1);
  const auto settings = Settings::Merge(WorkerSettings(), ReadEnvironment(WorkerSettings()));
  ::unsetenv("DSPARK_WORKER_TP");
  ::setenv("DSPARK_TP_TIMEOUT_MS", "", 1);
  ::unsetenv("DSPARK_TP_FUSE_PAIRS");
  ::setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
  EXPECT_EQ(ReadEnvironment(WorkerSettings()).size(), 0u);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->Integer("tp"), 2);
  EXPECT_EQ(settings->Integer("timeout-ms"), 750);
  EXPECT_FALSE(settings->Boolean("fuse-pairs"));
  EXPECT_TRUE(Settings::Merge(WorkerSettings(), {})->Boolean("fuse-pairs"));
  EXPECT_EQ(settings->List("gpus").size(), 2u);
}

TEST(WorkerConfig, NeedsAModelAndAsManyCardsAsRanks) {
  std::vector<GivenValue> given;
  auto config = ToWorkerConfig(*Settings::Merge(WorkerSettings(), given));
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  given.push_back({.name = "model", .text = "m", .origin = Origin::kFlag, .where = "--model"});
  config = ToWorkerConfig(*Settings::Merge(WorkerSettings(), given));
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->listen, "127.0.0.1:18627");
  EXPECT_EQ(config->rdma, "auto");
  given.push_back({.name = "tp", .text = "2", .origin = Origin::kFlag, .where = "--tp"});
  EXPECT_TRUE(ToWorkerConfig(*Settings::Merge(WorkerSettings(), given)).ok());
  given.push_back({.name = "gpus", .text = "GPU-c4e7a371", .origin = Origin::kFlag, .where = ""});
  config = ToWorkerConfig(*Settings::Merge(WorkerSettings(), given));
  EXPECT_SAYS(std::string(config.status().message()), "2 UUIDs in rank order");
}

}  // namespace
}  // namespace tp2::config
