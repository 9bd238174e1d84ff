#include "libcore/checkpoint/tensor_registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "libcore/model/synthetic_shape.h"

namespace tp2 {
namespace {

DrafterConfig ConfigOf(const char* shape) { return FindSyntheticShape(shape)->config; }

// The counts of the published checkpoints: see tensor_registry.h.
TEST(TensorRegistry, PublishedNamesOfV41FlashCount801And798And802) {
  const DrafterConfig config = ConfigOf("v41-flash");
  EXPECT_EQ(PublishedNames(config, 0).size(), 801u);
  EXPECT_EQ(PublishedNames(config, 1).size(), 798u);
  EXPECT_EQ(PublishedNames(config, 2).size(), 802u);
}

TEST(TensorRegistry, PublishedNamesOfV4FlashCount1568And1565And1572) {
  const DrafterConfig config = ConfigOf("v4-flash");
  EXPECT_EQ(PublishedNames(config, 0).size(), 1568u);
  EXPECT_EQ(PublishedNames(config, 1).size(), 1565u);
  EXPECT_EQ(PublishedNames(config, 2).size(), 1572u);
}

TEST(TensorRegistry, NamesNoTensorTwice) {
  for (const SyntheticShape& shape : SyntheticShapes()) {
    std::set<std::string> names;
    for (const TensorRule& rule : ExpectedTensors(shape.config)) {
      EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    }
  }
}

TEST(TensorRegistry, ShapesOfV41FlashAreThePublishedOnes) {
  const std::vector<TensorRule> rules = ExpectedTensors(ConfigOf("v41-flash"));
  const auto shape_of = [&rules](const std::string& name) -> std::vector<int64_t> {
    for (const TensorRule& rule : rules) {
      if (rule.name == name) return rule.shape;
    }
    ADD_FAILURE() << "no " << name;
    return {};
  };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shape_of("embed.weight"), (Shape{129280, 5120}));
  EXPECT_EQ(shape_of("head"), (Shape{129280, 5120}));
  EXPECT_EQ(shape_of("mtp.0.main_proj"), (Shape{5120, 15360}));
  EXPECT_EQ(shape_of("mtp.1.attn.wq_a"), (Shape{1280, 5120}));
  EXPECT_EQ(shape_of("mtp.1.attn.wq_b"), (Shape{32768, 1280}));
  EXPECT_EQ(shape_of("mtp.1.attn.wkv"), (Shape{512, 5120}));
  EXPECT_EQ(shape_of("mtp.1.attn.wo_a"), (Shape{8192, 4096}));
  EXPECT_EQ(shape_of("mtp.1.attn.wo_b"), (Shape{5120, 8192}));
  EXPECT_EQ(shape_of("mtp.1.attn.attn_sink"), (Shape{64}));
  EXPECT_EQ(shape_of("mtp.2.hc_ffn_fn"), (Shape{24, 20480}));
  EXPECT_EQ(shape_of("mtp.2.ffn.gate.weight"), (Shape{128, 5120}));
  EXPECT_EQ(shape_of("mtp.2.ffn.experts.127.w2"), (Shape{5120, 2304}));
  EXPECT_EQ(shape_of("mtp.2.markov_head.head.weight"), (Shape{129280, 256}));
  EXPECT_EQ(shape_of("mtp.2.confidence_head.proj.weight"), (Shape{1, 5376}));
}

TEST(TensorRegistry, ArchsDifferInTheLastStageAndTheUnusedBias) {
  const auto has = [](const DrafterConfig& config, const std::string& name) {
    const auto names = PublishedNames(config, 2);
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const DrafterConfig v41 = ConfigOf("tiny");
  const DrafterConfig v4 = ConfigOf("tiny-v4");
  EXPECT_TRUE(has(v41, "mtp.2.ffn.gate.bias_vl"));
  EXPECT_FALSE(has(v4, "mtp.2.ffn.gate.bias_vl"));
  EXPECT_TRUE(has(v4, "mtp.2.hc_head_scale"));
  EXPECT_FALSE(has(v41, "mtp.2.hc_head_scale"));
  EXPECT_TRUE(has(v41, "mtp.2.markov_head.embed.weight"));
  EXPECT_TRUE(has(v4, "mtp.2.markov_head.markov_w1.weight"));
}

}  // namespace
}  // namespace tp2
