#include "libcore/checkpoint/shard_set.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/checkpoint/editable_checkpoint.h"

namespace tp2 {
namespace {

constexpr auto kBad = absl::StatusCode::kInvalidArgument;
constexpr auto kLost = absl::StatusCode::kDataLoss;

// A folder with shards s1 {mtp.a, layers.x} and s2 {mtp.b} and the given index text.
class Folder {
 public:
  Folder() {
    WriteShard("s1", {"mtp.a", "layers.x"});
    WriteShard("s2", {"mtp.b"});
    WriteIndex(R"({"weight_map":{"mtp.a":"s1","layers.x":"s1","mtp.b":"s2"}})");
  }
  void WriteShard(const std::string& name, const std::vector<std::string>& tensors) {
    std::vector<TensorSpec> specs;
    for (const std::string& tensor : tensors) specs.push_back({tensor, DType::kU8, {4}});
    const auto produce = [](const TensorSpec&, const ByteSink& sink) {
      return sink(std::as_bytes(std::span("abcd", 4)));
    };
    const absl::Status status =
        WriteSafetensors(dir_.File(name), specs, produce, IfExists::kReplace);
    EXPECT_TRUE(status.ok()) << status;
  }
  void WriteIndex(const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(dir_.File(kIndexFile), text, IfExists::kReplace).ok());
  }
  absl::StatusOr<ShardSet> Open() const { return OpenShards(dir_.path()); }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
};

TEST(ShardSet, GathersDrafterTensorsOfAllShardsByName) {
  const Folder folder;
  const auto set = folder.Open();
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_EQ(set->tensors.size(), 2u);
  EXPECT_EQ(set->tensors[0].name, "mtp.a");
  EXPECT_EQ(set->tensors[1].name, "mtp.b");
  EXPECT_EQ(set->tensors[1].file, folder.dir().File("s2"));
}

TEST(ShardSet, NeedsNoFileThatHoldsOnlyTrunkTensors) {
  Folder folder;
  folder.WriteIndex(
      R"({"weight_map":{"mtp.a":"s1","layers.x":"s1","mtp.b":"s2","layers.y":"absent"}})");
  EXPECT_TRUE(folder.Open().ok());
}

TEST(ShardSet, OpensALoneFileWithoutAnIndex) {
  TempDir dir;
  ExpectRefusal(OpenShards(dir.path()).status(), kLost, {"model.safetensors"});
  Folder folder;
  folder.WriteShard(kSingleFile, {"mtp.c", "embed.weight"});
  std::filesystem::remove(folder.dir().File(kIndexFile));
  const auto set = folder.Open();
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->tensors.size(), 2u);
}

TEST(ShardSet, RefusesAnIndexWithoutItsMap) {
  Folder folder;
  for (const char* text :
       {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{"mtp.a":1}})"}) {
    folder.WriteIndex(text);
    EXPECT_FALSE(folder.Open().ok()) << text;
  }
  folder.WriteIndex(R"({"weight_map":{"layers.x":"s1"}})");
  ExpectRefusal(folder.Open().status(), kBad, {"mtp.*", "none"});
}

TEST(ShardSet, RefusesFileNamesThatLeaveTheFolder) {
  Folder folder;
  for (const char* name : {"../s1", "/etc/passwd", "a/b", "", "..", "s 1"}) {
    folder.WriteIndex(std::string(R"({"weight_map":{"mtp.a":")") + name + "\"}}");
    ExpectRefusal(folder.Open().status(), kBad, {"plain file names"});
  }
}

TEST(ShardSet, RefusesAShardThatLacksAnIndexedTensor) {
  Folder folder;
  folder.WriteIndex(R"({"weight_map":{"mtp.a":"s1","layers.x":"s1","mtp.b":"s2","mtp.c":"s2"}})");
  ExpectRefusal(folder.Open().status(), kBad, {"tensor mtp.c", "no such tensor", "s2"});
}

TEST(ShardSet, RefusesAShardWithATensorTheIndexDoesNotKnow) {
  Folder folder;
  folder.WriteIndex(R"({"weight_map":{"mtp.a":"s1","mtp.b":"s2"}})");
  ExpectRefusal(folder.Open().status(), kBad, {"tensor layers.x", "index entry", "s1"});
}

TEST(ShardSet, RefusesATensorThatTwoShardsHold) {
  Folder folder;
  folder.WriteShard("s2", {"mtp.b", "mtp.a"});
  // The index names one place; the other shard then holds a tensor that is not indexed there.
  ExpectRefusal(folder.Open().status(), kBad, {"tensor mtp.a", "s2"});
}

TEST(ShardSet, RefusesAMissingShard) {
  Folder folder;
  std::filesystem::remove(folder.dir().File("s2"));
  ExpectRefusal(folder.Open().status(), kLost, {"s2"});
}

TEST(ShardSet, DrawsTheLineBetweenDrafterAndTrunk) {
  for (const char* name : {"mtp.0.norm.weight", "embed.weight", "head.trellis"}) {
    EXPECT_TRUE(IsDrafterTensor(name)) << name;
  }
  for (const char* name : {"norm.weight", "layers.0.attn.wq_a.trellis", "hc_head_fn", "mtp",
                           "headroom.weight", "vision.embed.weight"}) {
    EXPECT_FALSE(IsDrafterTensor(name)) << name;
  }
}

}  // namespace
}  // namespace tp2
