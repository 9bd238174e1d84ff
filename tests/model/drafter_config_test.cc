#include "libcore/model/drafter_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "libcore/base/json.h"
#include "libcore/model/synthetic_shape.h"
#include "tests/model/config_texts.h"

namespace tp2 {
namespace {

DrafterConfig Parsed(const std::string& text) {
  const auto config = ParseDrafterConfig(text, "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : DrafterConfig{};
}

TEST(DrafterConfig, ReadsV41Flash) {
  const DrafterConfig config = Parsed(kV41FlashConfig);
  EXPECT_EQ(config.Canonical(), FindSyntheticShape("v41-flash")->config.Canonical());
  EXPECT_EQ(config.arch, Arch::kV41);
  EXPECT_EQ(config.experts, 128);
  EXPECT_EQ(config.experts_per_token, 3);
  EXPECT_EQ(config.norm_eps, 1e-20f);
  EXPECT_EQ(config.tap_values(), 15360);
  EXPECT_EQ(config.query_values(), 32768);
  EXPECT_EQ(config.group_inputs(), 4096);
  EXPECT_EQ(config.output_values(), 8192);
  EXPECT_EQ(config.ring_rows(), 144);
  EXPECT_EQ(config.fp8_block(), 32);
  EXPECT_EQ(config.fake_quant_dims(), 512);
  EXPECT_EQ(config.kv_fake_quant, KvFakeQuant::kReference);
}

TEST(DrafterConfig, ReadsV4FlashWithThreeStagesAndTheTrunksExperts) {
  const DrafterConfig config = Parsed(kV4FlashConfig);
  EXPECT_EQ(config.Canonical(), FindSyntheticShape("v4-flash")->config.Canonical());
  EXPECT_EQ(config.stages, 3);
  EXPECT_EQ(config.experts, 256);
  EXPECT_EQ(config.experts_per_token, 6);
  EXPECT_EQ(config.fp8_block(), 128);
  EXPECT_EQ(config.fake_quant_dims(), 448);
}

TEST(DrafterConfig, ReadsV4Pro) {
  const DrafterConfig config = Parsed(kV4ProConfig);
  EXPECT_EQ(config.Canonical(), FindSyntheticShape("v4-pro")->config.Canonical());
  EXPECT_EQ(config.stages, 3);
  EXPECT_EQ(config.route_scale, 2.5f);
  EXPECT_EQ(config.markov_rank, 512);
}

TEST(DrafterConfig, ReadsTheGoldenFolder) {
  const auto config = LoadDrafterConfig(TP2_SOURCE_DIR "/tests/golden/v41-tiny");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->Canonical(), FindSyntheticShape("tiny")->config.Canonical());
}

TEST(DrafterConfig, EverySyntheticConfigReadsBackEqual) {
  for (const SyntheticShape& shape : SyntheticShapes()) {
    EXPECT_EQ(Parsed(SyntheticConfigText(shape, 1)).Canonical(), shape.config.Canonical())
        << shape.name;
  }
}

TEST(DrafterConfig, BothSpellingsOfTheTopKMeanTheSame) {
  Json document = Json::parse(kV41FlashConfig);
  Json& text = document["text_config"];
  text.erase("dspark_n_activated_experts");
  text["dspark_num_experts_per_tok"] = 3;
  EXPECT_EQ(Parsed(document.dump()).experts_per_token, 3);
  text["dspark_n_activated_experts"] = 3;
  EXPECT_EQ(Parsed(document.dump()).experts_per_token, 3);
}

TEST(DrafterConfig, FakeQuantizationCanBeSwitchedOff) {
  Json document = Json::parse(kV4ProConfig);
  document["kv_fake_quant"] = "none";
  EXPECT_EQ(Parsed(document.dump()).kv_fake_quant, KvFakeQuant::kNone);
  document["kv_fake_quant"] = "reference";
  EXPECT_EQ(Parsed(document.dump()).kv_fake_quant, KvFakeQuant::kReference);
}

TEST(DrafterConfig, CanonicalLinesAreSortedAndTellConfigsApart) {
  DrafterConfig config = FindSyntheticShape("tiny")->config;
  std::istringstream stream(config.Canonical());
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  EXPECT_TRUE(std::is_sorted(lines.begin(), lines.end()));
  EXPECT_NE(std::find(lines.begin(), lines.end(), "norm_eps=9.99999968e-21"), lines.end());
  EXPECT_NE(std::find(lines.begin(), lines.end(), "target_layers=1,2,3"), lines.end());
  const std::string before = config.Canonical();
  config.kv_fake_quant = KvFakeQuant::kNone;
  EXPECT_NE(config.Canonical(), before);
}

}  // namespace
}  // namespace tp2
