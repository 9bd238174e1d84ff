#include "libcore/checkpoint/loader.h"

#include <gtest/gtest.h>

#include <set>

#include "libcore/base/digest.h"
#include "tests/checkpoint/editable_checkpoint.h"

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
  EXPECT_EQ(weights.main_proj.k, 768);
  EXPECT_EQ(weights.stages[0].wo_a.fp8_block, 32);
  EXPECT_EQ(weights.confidence.columns, 288);
  EXPECT_FALSE(weights.embed.is_fp16);
  EXPECT_EQ(weights.head_mix_fn, nullptr);
}

TEST(Checkpoint, IdentityOfTheGoldenFolderIsStable) {
  const auto checkpoint = Checkpoint::Open(kGolden);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(Hex((*checkpoint)->IdentityDigest()),
            "586d95a7cbefac4c31212ddc0b28a20ccf59fde6395d1c6ddaded63e697a8f27");
  EXPECT_EQ((*checkpoint)->IdentityDigest(), (*checkpoint)->IdentityDigest());
}

TEST(Checkpoint, ViewsPointAtTheTensorsOfTheirNames) {
  EditableCheckpoint pack;
  pack.Poke<uint16_t>("mtp.1.ffn.experts.1.w3.trellis", 0, 0x1234);
  pack.Poke<uint16_t>("mtp.1.ffn.experts.1.w3.suh", 127, 0x2345);
  pack.Poke<uint16_t>("mtp.1.ffn.experts.1.w3.svh", 255, 0x3456);
  pack.Poke<uint16_t>("mtp.0.ffn.gate.weight", 128, 0x4567);
  pack.Poke<float>("mtp.0.ffn.gate.bias", 1, 42.0f);
  const auto checkpoint = pack.Open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const DrafterWeights& weights = (*checkpoint)->weights();
  const exl3::MatrixView& w3 = weights.stages[1].experts[1].w3;
  EXPECT_EQ(w3.trellis[0], 0x1234);
  EXPECT_EQ(w3.suh[127].bits, 0x2345);
  EXPECT_EQ(w3.svh[255].bits, 0x3456);
  EXPECT_EQ(weights.stages[0].gate.bits[128], 0x4567);
  EXPECT_EQ(weights.stages[0].gate.rows, 2);
  EXPECT_EQ(weights.stages[0].gate_bias[1], 42.0f);
}

TEST(Checkpoint, IdentityChangesWithOneByteOfAnyTensorAndNotWithTheSharding) {
  EditableCheckpoint pack;
  const auto first = pack.Open();
  ASSERT_TRUE(first.ok()) << first.status();
  const Sha256Digest identity = (*first)->IdentityDigest();
  const auto sharded = pack.Open(100'000);
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  EXPECT_FALSE(std::filesystem::exists(pack.dir().File("model.safetensors")));
  EXPECT_EQ((*sharded)->IdentityDigest(), identity);
  // The unused bias counts too: it is part of what the two sides call the same checkpoint.
  for (const char* name : {"mtp.0.ffn.experts.1.w2.trellis", "embed.weight", "head.mul1",
                           "mtp.1.ffn.gate.bias_vl", "mtp.0.attn.wo_a.weight"}) {
    EditableCheckpoint other;
    other.at(name).bytes[1] = static_cast<char>(other.at(name).bytes[1] ^ 1);
    const auto changed = other.Open();
    ASSERT_TRUE(changed.ok()) << changed.status();
    EXPECT_NE((*changed)->IdentityDigest(), identity) << name;
  }
}

TEST(Checkpoint, LegacySignWordsBecomeUnitScales) {
  EditableCheckpoint pack;
  ASSERT_EQ(pack.tensors().erase("head.suh"), 1u);
  pack.Put("head.su", DType::kI16, {8});
  pack.Poke<uint16_t>("head.su", 1, 0x8001);  // channels 16 and 31
  const auto checkpoint = pack.Open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const Fp16* suh = (*checkpoint)->weights().head.suh;
  for (int i = 0; i < 128; ++i) {
    EXPECT_EQ(ToFloat(suh[i]), i == 16 || i == 31 ? -1.0f : 1.0f) << i;
  }
}

TEST(Checkpoint, ExponentByteScalesEqualTheirFp32Form) {
  for (const DType dtype : {DType::kFp8E8m0, DType::kU8}) {
    EditableCheckpoint pack;
    std::string bytes(32, '\x7F');
    bytes[3] = 27;
    bytes[4] = static_cast<char>(227);
    pack.Put("mtp.0.attn.wo_a.scale", dtype, {8, 4}, bytes);
    const auto checkpoint = pack.Open();
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const float* scale = (*checkpoint)->weights().stages[0].wo_a.fp8_scale;
    EXPECT_EQ(scale[0], 1.0f);
    EXPECT_EQ(scale[3], 0x1p-100f);
    EXPECT_EQ(scale[4], 0x1p100f);
  }
}

TEST(Checkpoint, MixedPackGivesSlicesWidthsAndCodebooksPerMatrix) {
  TempDir dir;
  ThreadPool pool(2);
  ASSERT_TRUE(WriteSynthetic(*FindSyntheticShape("tiny-mixed"), 1, dir.path(), pool).ok());
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const DrafterWeights& weights = (*checkpoint)->weights();
  std::set<int> widths;
  std::set<exl3::Codebook> codebooks;
  for (const StageWeights& stage : weights.stages) {
    EXPECT_EQ(stage.wo_a.fp8, nullptr);
    ASSERT_EQ(stage.wo_a.slices.size(), 2u);
    EXPECT_EQ(stage.wo_a.slices[1].k, 256);
    EXPECT_EQ(stage.wo_a.slices[1].n, 128);
    for (const ExpertWeights& expert : stage.experts) {
      for (const exl3::MatrixView* matrix : {&expert.w1, &expert.w2, &expert.w3}) {
        widths.insert(matrix->bits);
        codebooks.insert(matrix->codebook);
      }
    }
  }
  EXPECT_EQ(widths.size(), 8u);
  EXPECT_EQ(codebooks.size(), 3u);
  EXPECT_TRUE(weights.markov_embed.is_fp16);
}

}  // namespace
}  // namespace tp2
