// The file format of kernel tables: what is written is read, everything else is refused in one
// line.
#include "libcore/tuning/kernel_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "libcore/report/exit_code.h"
#include "libcore/tuning/kernel_choices.h"
#include "libcore/tuning/table_fields.h"

namespace tp2::tuning {
namespace {

using ::testing::HasSubstr;

const CardKind kH200 = {"NVIDIA H200", 90, 132};

KernelTable MeasuredTable() {
  KernelTable table;
  table.card = kH200;
  table.driver = "580.159.04";
  table.sm_clock_mhz = 1980;
  table.build = ThisBuild();
  table.entries[ProductKey{5, 5120, 16, 8}] = {ProductChoice{16}, 12.5, ProductChoice{10}, 1.25};
  table.entries[ProductKey{6, 5120, 505, 8}] = {ProductChoice{1}, 160.0, std::nullopt,
                                                std::nullopt};
  table.entries[ReduceKey{25600}] = {ReduceChoice{PairProtocol::kLine, 67, 128}, 2.65,
                                     ReduceChoice{PairProtocol::kLine, 134, 64}, -0.5};
  return table;
}

// The measured table with one change to its JSON.
std::string Changed(const std::string& pointer, const Json& value) {
  Json json = Json::parse(MeasuredTable().ToText());
  json[Json::json_pointer(pointer)] = value;
  return json.dump();
}

std::string Refusal(const std::string& text) {
  const auto table = ParseKernelTable(text, "t.json");
  EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_EQ(ExitCodeOf(table.status()), kExitUsage);
  std::string message(table.status().message());
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_THAT(message, HasSubstr("; "));
  return message;
}

TEST(KernelTable, WhatIsWrittenIsRead) {
  const KernelTable table = MeasuredTable();
  const auto read = ParseKernelTable(table.ToText(), "t.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToText(), table.ToText());
  EXPECT_EQ(read->card, kH200);
  EXPECT_EQ(std::get<ProductChoice>(read->Find(ProductKey{5, 5120, 16, 8})->choice).splits, 16);
  EXPECT_EQ(read->Find(ProductKey{5, 5120, 16, 12}), nullptr);
  EXPECT_TRUE(read->is_measured());
}

TEST(KernelTable, ATableWithoutTimesSaysThatNothingWasMeasured) {
  KernelTable table = MeasuredTable();
  table.driver.reset();
  for (auto& [key, entry] : table.entries) {
    entry = {entry.choice, std::nullopt, std::nullopt, std::nullopt};
  }
  const auto read = ParseKernelTable(table.ToText(), "t.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->is_measured());
  EXPECT_THAT(table.ToText(), HasSubstr("\"us_p50\": null"));
}

TEST(KernelTable, RefusesUnknownMissingAndDuplicateFields) {
  EXPECT_THAT(Refusal(Changed("/extra", 1)), HasSubstr("field \"extra\": expected no such field"));
  EXPECT_THAT(Refusal(Changed("/entries/0/warps", 4)), HasSubstr("entry 0"));
  EXPECT_THAT(Refusal(Changed("/card/uuid", "GPU-1")), HasSubstr("t.json, card"));
  EXPECT_THAT(Refusal(Changed("/entries/0/choice/blocks", 4)), HasSubstr("no such field"));
  for (const char* field : {"schema", "card", "driver", "clocks", "build", "entries"}) {
    Json json = Json::parse(MeasuredTable().ToText());
    json.erase(field);
    EXPECT_THAT(Refusal(json.dump()), HasSubstr(std::string("field ") + field));
  }
  for (const char* field :
       {"op", "bits", "k", "blocks", "rows", "choice", "us_p50", "runner_up", "us_gap_pct"}) {
    Json json = Json::parse(MeasuredTable().ToText());
    json["entries"][0].erase(field);
    EXPECT_THAT(Refusal(json.dump()), HasSubstr(std::string("field ") + field));
  }
  std::string twice = MeasuredTable().ToText();
  twice.insert(1, "\"driver\": \"x\",");
  EXPECT_THAT(Refusal(twice), HasSubstr("twice"));
  Json json = Json::parse(MeasuredTable().ToText());
  json["entries"].push_back(json["entries"][0]);
  EXPECT_THAT(Refusal(json.dump()), HasSubstr("expected each key once"));
}

TEST(KernelTable, RefusesValuesThatNoLaunchCouldTake) {
  const std::pair<const char*, Json> bad[] = {
      {"/schema", "tp2-kernels/2"},
      {"/entries", Json::object()},
      {"/entries/0", 7},
      {"/entries/0/op", "experts"},
      {"/entries/0/bits", 9},
      {"/entries/0/k", 5000},
      {"/entries/0/k", -5120},
      {"/entries/0/rows", 6},
      {"/entries/0/rows", 28},
      {"/entries/0/blocks", 0},
      {"/entries/0/blocks", 1.5},
      {"/entries/0/choice", nullptr},
      {"/entries/0/choice/splits", 0},
      {"/entries/0/choice/splits", 21},  // 5120 inputs have 20 parts of 256
      {"/entries/0/choice/splits", 18446744073709551615u},
      {"/entries/0/us_p50", 0},
      {"/entries/0/us_p50", "12"},
      {"/entries/0/us_p50", nullptr},
      {"/entries/0/runner_up", nullptr},
      {"/entries/0/us_gap_pct", -101},
      {"/entries/2/words", 0},
      {"/entries/2/choice/protocol", "nccl"},
      {"/entries/2/choice/blocks", 161},
      {"/entries/2/choice/threads", 48},
      {"/entries/2/choice/threads", 2048},
      {"/card/name", ""},
      {"/card/name", "a\nb"},
      {"/card/sm", 9},
      {"/driver", nullptr},  // but its entries have times
      {"/build/launch_version", 0},
  };
  for (const auto& [pointer, value] : bad) {
    EXPECT_NE(Refusal(Changed(pointer, value)), "") << pointer << " " << value;
  }
  EXPECT_THAT(Refusal(Changed("/entries/0/choice/splits", 21)),
              HasSubstr("expected an integer from 1 to 20, got 21 (t.json, entry 0, choice)"));
  EXPECT_NE(Refusal("[]"), "");
  EXPECT_NE(Refusal(""), "");
  EXPECT_LT(Refusal(Changed("/" + std::string(100000, 'x'), 1)).size(), 500u);
}

TEST(KernelTable, AllReducesOfTwoProtocolsAreNoTable) {
  KernelTable table = MeasuredTable();
  table.entries[ReduceKey{51200}] = {ReduceChoice{PairProtocol::kAck, 100, 128}, 3.0, std::nullopt,
                                     std::nullopt};
  EXPECT_THAT(Refusal(table.ToText()), HasSubstr("expected the protocol of the others, line"));
}

TEST(KernelTable, AnotherCardOrBuildIsAMatterOfTheEnvironment) {
  KernelTable table = MeasuredTable();
  EXPECT_TRUE(CheckCard(table, kH200).ok());
  EXPECT_TRUE(CheckBuild(table).ok());
  const CardKind other = {"NVIDIA GeForce RTX 3090", 86, 82};
  EXPECT_EQ(ExitCodeOf(CheckCard(table, other)), kExitEnvironment);
  EXPECT_THAT(std::string(CheckCard(table, other).message()),
              HasSubstr("expected NVIDIA GeForce RTX 3090, sm_86, 82 SM, got NVIDIA H200"));
  EXPECT_FALSE(CheckCard(table, {"NVIDIA H200", 90, 66}).ok()) << "a part of the card";
  // Another commit of the same numerics and launches is the same build.
  table.build.git = "0123456789ab";
  EXPECT_TRUE(CheckBuild(table).ok());
  table.build.launch_version += 1;
  EXPECT_EQ(ExitCodeOf(CheckBuild(table)), kExitEnvironment);
  table = MeasuredTable();
  table.build.numerics_version += 1;
  EXPECT_EQ(ExitCodeOf(CheckBuild(table)), kExitEnvironment);
}

TEST(KernelTable, MergeKeepsOtherKeysAndRefusesOtherCards) {
  KernelTable addition = MeasuredTable();
  addition.entries.clear();
  addition.entries[ProductKey{5, 5120, 16, 8}] = {ProductChoice{20}, 11.0, std::nullopt,
                                                  std::nullopt};
  const auto merged = Merge(MeasuredTable(), addition);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->entries.size(), 3u);
  EXPECT_EQ(std::get<ProductChoice>(merged->Find(ProductKey{5, 5120, 16, 8})->choice).splits, 20);
  addition.card.multiprocessors = 66;
  EXPECT_EQ(Merge(MeasuredTable(), addition).status().code(), absl::StatusCode::kInvalidArgument);
  addition = MeasuredTable();
  addition.entries.clear();
  addition.entries[ReduceKey{51200}] = {ReduceChoice{PairProtocol::kAck, 100, 128}, 3.0,
                                        std::nullopt, std::nullopt};
  EXPECT_FALSE(Merge(MeasuredTable(), addition).ok()) << "two protocols";
}

TEST(KernelChoices, NeverGuessAndRememberWhatWasMissing) {
  KernelChoices choices(MeasuredTable(), "d");
  EXPECT_EQ(choices.Splits({5, 5120, 16, 8}), 16);
  EXPECT_EQ(choices.Splits({5, 5120, 16, 12}), std::nullopt) << "a neighbour is no answer";
  EXPECT_EQ(choices.Splits({5, 5120, 16, 12}), std::nullopt);
  EXPECT_EQ(choices.Reduce({25601}), std::nullopt);
  EXPECT_EQ(choices.Reduce({25600})->blocks, 67);
  EXPECT_EQ(choices.protocol(), PairProtocol::kLine);
  EXPECT_EQ(choices.use().found, 2);
  EXPECT_EQ(choices.use().missing, 2) << "each shape once";
  EXPECT_EQ(Describe(choices.use()), "table d: 2 launch shapes found, 2 missing (safe defaults)");
}

TEST(KernelChoices, LoadTellsAMissingFileFromABadOneAndAnotherBuild) {
  EXPECT_EQ(KernelChoices::Load("/nonexistent/t.json").status().code(),
            absl::StatusCode::kDataLoss);
  const std::string path = ::testing::TempDir() + "kernel_table_test.json";
  const auto load = [&path](const std::string& text) {
    std::ofstream(path) << text;
    return KernelChoices::Load(path);
  };
  EXPECT_EQ(load("{}").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(load(Changed("/build/launch_version", 99)).status().code(),
            absl::StatusCode::kUnavailable);
  const auto choices = load(MeasuredTable().ToText());
  ASSERT_TRUE(choices.ok()) << choices.status();
  // The digest is of what the table says, not of how the file is laid out.
  EXPECT_EQ((*load(Json::parse(MeasuredTable().ToText()).dump()))->use().digest,
            (*choices)->use().digest);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace tp2::tuning
