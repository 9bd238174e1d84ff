#include <gtest/gtest.h>

#include "libcore/checkpoint/loader.h"

namespace tp2 {
namespace {

constexpr char kGolden[] = TP2_SOURCE_DIR "/tests/golden/v41-tiny";

TEST(Checkpoint, OpensTheGoldenFolder) {
  const auto checkpoint = Checkpoint::Open(kGolden);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const DrafterConfig& config = (*checkpoint)->config();
  const DrafterWeights& weights = (*checkpoint)->weights();
  EXPECT_EQ(config.stages, 3);
  EXPECT_EQ(config.experts, 8);
  EXPECT_EQ(config.experts_per_token, 3);
  EXPECT_EQ((*checkpoint)->tensors().size(), 434u);
  ASSERT_EQ(weights.stages.size(), 3u);
  EXPECT_EQ(weights.stages[1].experts.size(), 8u);
  EXPECT_EQ(weights.stages[2].experts[7].w2.bits, 2);
  EXPECT_EQ(weights.head.bits, 6);
  EXPECT_EQ(weights.head.codebook, exl3::Codebook::kMul1);
  EXPECT_EQ(weights.head.n, 1280);
  EXPECT_EQ(weights.head.k, 256);
  EXPECT_EQ(weights.head.tile_row_pitch, 80 * 96);
  EXPECT_EQ(weights.main_proj.bits, 5);
  EXPECT_EQ(weights.stages[0].wo_a.fp8_block, 32);
  EXPECT_FALSE(weights.embed.is_fp16);
  EXPECT_EQ(weights.head_mix_fn, nullptr);
}

}  // namespace
}  // namespace tp2
