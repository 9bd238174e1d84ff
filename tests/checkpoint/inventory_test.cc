#include "libcore/checkpoint/inventory.h"

#include <gtest/gtest.h>

#include "libcore/checkpoint/shard_set.h"

namespace tp2 {
namespace {

class InventoryTest : public testing::Test {
 protected:
  void SetUp() override {
    auto set = OpenShards(TP2_SOURCE_DIR "/tests/golden/v41-tiny");
    ASSERT_TRUE(set.ok()) << set.status();
    shards_ = std::move(*set);
    lines_ = BuildInventory(shards_.tensors);
  }
  const InventoryLine* Find(const std::vector<InventoryLine>& lines, const std::string& name) {
    for (const InventoryLine& line : lines) {
      if (line.name == name) return &line;
    }
    return nullptr;
  }
  ShardSet shards_;
  std::vector<InventoryLine> lines_;
};

TEST_F(InventoryTest, DescribesPackedScaledAndPlainTensors) {
  const InventoryLine* head = Find(lines_, "head");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->form, "exl3");
  EXPECT_EQ(head->bits, 6);
  EXPECT_EQ(head->codebook, "mul1");
  EXPECT_EQ(head->shape, (std::vector<int64_t>{256, 1280}));
  EXPECT_EQ(head->stored_bytes, 256 * 1280 * 6 / 8 + 2 * (256 + 1280) + 4);
  const InventoryLine* wo_a = Find(lines_, "mtp.1.attn.wo_a");
  ASSERT_NE(wo_a, nullptr);
  EXPECT_EQ(wo_a->form, "fp8");
  EXPECT_EQ(wo_a->shape, (std::vector<int64_t>{256, 256}));
  EXPECT_EQ(wo_a->stored_bytes, 256 * 256 + 8 * 8 * 4);
  const InventoryLine* norm = Find(lines_, "mtp.1.attn_norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->form, "BF16");
}

TEST_F(InventoryTest, FoldingAndPartsLoseNoByte) {
  int64_t file_bytes = 0;
  for (const TensorView& view : shards_.tensors)
    file_bytes += static_cast<int64_t>(view.bytes.size());
  int64_t folded_bytes = 0;
  int64_t part_bytes = 0;
  const std::vector<InventoryLine> folded = FoldInventory(lines_);
  for (const InventoryLine& line : folded) folded_bytes += line.stored_bytes;
  for (const PartTotal& total : PartTotals(lines_)) part_bytes += total.stored_bytes;
  EXPECT_EQ(folded_bytes, file_bytes);
  EXPECT_EQ(part_bytes, file_bytes);
  const InventoryLine* experts = Find(folded, "mtp.*.ffn.experts.*.w1");
  ASSERT_NE(experts, nullptr);
  EXPECT_EQ(experts->matrices, 24);
}

TEST_F(InventoryTest, JsonHasTheSchemaAndTheTotal) {
  const Json json = InventoryJson(lines_);
  EXPECT_EQ(json["schema"], "dspark-pack-inspect/1");
  EXPECT_EQ(json["total_bytes"], 4011316);  // metadata.total_size of the folder's own index
  EXPECT_EQ(json["tensors"].size(), lines_.size());
}

}  // namespace
}  // namespace tp2
