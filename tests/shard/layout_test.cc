// The shard table: the specification's Layout section, its cuts and its refusals.
#include "libcore/shard/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "libcore/model/synthetic_shape.h"

namespace tp2 {
namespace {

using ::testing::HasSubstr;

const DrafterConfig& Shape(const char* name) { return FindSyntheticShape(name)->config; }

TensorRule RuleOf(const DrafterConfig& config, const std::string& name) {
  for (TensorRule& rule : ExpectedTensors(config)) {
    if (rule.name == name) return rule;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

Span Held(const DrafterConfig& config, const std::string& name, int rank) {
  const TensorRule rule = RuleOf(config, name);
  return HeldSpan(LayoutOf(name), rule, config, *MakeShardPlan(config, 2, rank));
}

TEST(Layout, EveryTensorOfEveryShapeHasOneRowAndEveryRowATensor) {
  std::map<const LayoutRow*, int> uses;
  for (const SyntheticShape& shape : SyntheticShapes()) {
    for (const TensorRule& rule : ExpectedTensors(shape.config)) ++uses[&LayoutOf(rule.name)];
  }
  EXPECT_EQ(uses.size(), Layout().size());
}

TEST(Layout, EveryShapeIsCoveredOnceAndCutOnItsUnit) {
  for (const SyntheticShape& shape : SyntheticShapes()) {
    for (const int tp : {1, 2}) {
      const auto plans = MakePlans(shape.config, tp);
      ASSERT_TRUE(plans.ok()) << shape.name << ": " << plans.status();
      EXPECT_EQ(plans->size(), static_cast<size_t>(tp));
    }
  }
}

TEST(Layout, FlashIsCutAsTheSpecificationSays) {
  const DrafterConfig& flash = Shape("v41-flash");
  EXPECT_EQ(Held(flash, "head", 0), (Span{0, 64768}));
  EXPECT_EQ(Held(flash, "head", 1), (Span{64768, 129280}));
  EXPECT_EQ(Held(flash, MarkovHeadName(flash), 1), (Span{64768, 129280}));
  EXPECT_EQ(Held(flash, MarkovEmbedName(flash), 1), (Span{0, 129280}));
  for (const int r : {0, 1}) {
    EXPECT_EQ(Held(flash, "mtp.1.attn.wq_b", r), (Span{16384 * r, 16384 * (r + 1)}));
    EXPECT_EQ(Held(flash, "mtp.1.attn.attn_sink", r), (Span{32 * r, 32 * (r + 1)}));
    EXPECT_EQ(Held(flash, "mtp.1.attn.wo_a", r), (Span{4096 * r, 4096 * (r + 1)}));
    EXPECT_EQ(Held(flash, "mtp.1.attn.wo_b", r), (Span{4096 * r, 4096 * (r + 1)}));
    EXPECT_EQ(Held(flash, "mtp.2.ffn.experts.127.w1", r), (Span{1152 * r, 1152 * (r + 1)}));
    EXPECT_EQ(Held(flash, "mtp.2.ffn.experts.127.w2", r), (Span{1152 * r, 1152 * (r + 1)}));
    EXPECT_EQ(Held(flash, "mtp.0.ffn.shared_experts.w3", r), (Span{1152 * r, 1152 * (r + 1)}));
    EXPECT_EQ(Held(flash, "mtp.0.attn.wkv", r), (Span{0, 512}));
    EXPECT_EQ(Held(flash, "mtp.0.main_proj", r), (Span{0, 5120}));
    EXPECT_EQ(Held(flash, "mtp.0.ffn.gate.weight", r), (Span{0, 128}));
  }
}

TEST(Layout, ConfidenceHeadLivesOnRankZeroOnly) {
  const DrafterConfig& tiny = Shape("tiny");
  const std::string name = "mtp.2.confidence_head.proj.weight";
  EXPECT_EQ(Held(tiny, name, 0).count(), 1);
  EXPECT_EQ(Held(tiny, name, 1).count(), 0);
}

TEST(Layout, LargerVocabularyPartWithTheLowerTokensIsOnRankZero) {
  // 33 tiles of 256, and the ragged ends that a vocabulary may have.
  EXPECT_EQ(Held(Shape("medium"), "head", 0), (Span{0, 17 * 256}));
  DrafterConfig ragged = Shape("tiny");
  ragged.vocab = 5 * 256 - 128;
  EXPECT_EQ(Held(ragged, "head", 0), (Span{0, 768}));
  EXPECT_EQ(Held(ragged, "head", 1), (Span{768, 1152}));
}

// Each size one step away from what can be cut.
TEST(Layout, RefusesSizesThatDoNotCut) {
  const auto refusal = [](auto change) {
    DrafterConfig config = Shape("tiny");
    change(config);
    return std::string(MakePlans(config, 2).status().message());
  };
  EXPECT_THAT(refusal([](auto& c) { c.moe_inter = 128; }), HasSubstr("intermediate channels"));
  EXPECT_THAT(refusal([](auto& c) { c.moe_inter = 384; }), HasSubstr("a multiple of 256, got 384"));
  EXPECT_THAT(refusal([](auto& c) { c.o_groups = 1; }), HasSubstr("output groups"));
  EXPECT_THAT(refusal([](auto& c) { c.o_lora_rank = 64; }), HasSubstr("output values"));
  EXPECT_THAT(refusal([](auto& c) { c.head_dim = 32; }), HasSubstr("query values"));
  EXPECT_THAT(refusal([](auto& c) { c.heads = 6, c.o_groups = 4; }), HasSubstr("heads"));
  EXPECT_THAT(refusal([](auto& c) { c.vocab = 256; }), HasSubstr("cuts on multiples of 256"));
}

TEST(Layout, RefusesTpThatHalvesCannotServe) {
  for (const int tp : {-1, 0, 3, 4}) {
    EXPECT_FALSE(MakePlans(Shape("v41-flash"), tp).ok()) << tp;
  }
}

}  // namespace
}  // namespace tp2
