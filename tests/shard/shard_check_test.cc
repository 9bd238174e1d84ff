// decode(slice) == slice(decode) on real folders, and that the check would notice.
#include "libcore/shard/shard_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "libcore/checkpoint/loader.h"
#include "libcore/checkpoint/synthetic.h"
#include "libcore/exl3/decode.h"
#include "libcore/shard/layout.h"

namespace tp2 {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A synthetic checkpoint in a folder of its own, removed at the end.
class SyntheticFolder {
 public:
  explicit SyntheticFolder(const char* shape) : dir_(::testing::TempDir() + "tp2_shard_XXXXXX") {
    EXPECT_NE(::mkdtemp(dir_.data()), nullptr);
    ThreadPool pool(2);
    EXPECT_TRUE(WriteSynthetic(*FindSyntheticShape(shape), 1, dir_, pool).ok());
    auto checkpoint = Checkpoint::Open(dir_);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_ = std::move(*checkpoint);
  }
  ~SyntheticFolder() { std::filesystem::remove_all(dir_); }
  const Checkpoint& checkpoint() const { return *checkpoint_; }

 private:
  std::string dir_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

std::vector<RankShard> Cut(const Checkpoint& checkpoint, int tp) {
  std::vector<RankShard> ranks;
  const std::vector<ShardPlan> plans = *MakePlans(checkpoint.config(), tp);
  for (const ShardPlan& plan : plans) {
    ranks.push_back({plan, CutWeights(checkpoint.config(), checkpoint.weights(), plan)});
  }
  return ranks;
}

ShardCheck Check(const Checkpoint& checkpoint, const std::vector<RankShard>& ranks) {
  ThreadPool pool(2);
  return CheckShards(checkpoint.config(), checkpoint.weights(), ranks, pool, nullptr);
}

TEST(ShardCheck, BlockIsTheDenseDecodersBlock) {
  const SyntheticFolder folder("tiny-mixed");
  const exl3::MatrixView& matrix = folder.checkpoint().weights().stages[1].wq_b;
  const std::vector<double> dense = exl3::DenseWeights(matrix, exl3::WeightForm::kFp16);
  std::vector<double> block(128 * 128);
  for (int k = 0; k < matrix.k; k += 128) {
    for (int n = 0; n < matrix.n; n += 128) {
      DecodeBlock(matrix, k, n, block.data());
      for (int i = 0; i < 128; ++i) {
        for (int j = 0; j < 128; ++j) {
          ASSERT_EQ(block[i * 128 + j], dense[static_cast<size_t>(k + i) * matrix.n + n + j]);
        }
      }
    }
  }
}

TEST(ShardCheck, EveryMatrixOfEveryShapeAndTpIsItsSlice) {
  for (const char* shape : {"tiny", "tiny-v4", "tiny-mixed"}) {
    const SyntheticFolder folder(shape);
    const DrafterConfig& config = folder.checkpoint().config();
    const bool has_slices = !folder.checkpoint().weights().stages[0].wo_a.slices.empty();
    for (const int tp : {1, 2}) {
      const ShardCheck check = Check(folder.checkpoint(), Cut(folder.checkpoint(), tp));
      EXPECT_THAT(check.differences, IsEmpty()) << shape << " tp " << tp;
      // main_proj, head, and per stage: 4 of attention, 3 of every expert and of the shared one.
      const int per_stage = 4 + 3 * (config.experts + 1);
      const int slices = has_slices ? config.stages * config.o_groups : 0;
      EXPECT_EQ(check.matrices, tp * (2 + config.stages * per_stage) + slices);
      EXPECT_GT(check.plain_tensors, tp * config.stages * 14);
    }
  }
}

TEST(ShardCheck, ReportsProgressUpToTheEnd) {
  const SyntheticFolder folder("tiny");
  ThreadPool pool(2);
  int64_t last = 0, end = 0;
  const ShardCheck check =
      CheckShards(folder.checkpoint().config(), folder.checkpoint().weights(),
                  Cut(folder.checkpoint(), 2), pool, [&](int64_t done, int64_t total) {
                    EXPECT_GT(done, last);
                    last = done;
                    end = total;
                  });
  EXPECT_EQ(last, end);
  EXPECT_EQ(check.weights, last);
  EXPECT_GT(last, 1000000);
}

// Nine wrong views; the check names exactly those tensors.
TEST(ShardCheck, NamesEveryTensorThatIsCutWrongAndNoOther) {
  const SyntheticFolder folder("tiny");
  const Checkpoint& whole = folder.checkpoint();
  std::vector<RankShard> ranks = Cut(whole, 2);
  RankWeights& r = ranks[1].weights;
  const StageWeights& stage = whole.weights().stages[1];
  r.stages[1].wq_b = exl3::SliceOutputs(stage.wq_b, 0, 256);
  r.stages[1].experts[7].w2[0] = exl3::SliceInputs(stage.experts[7].w2, 0, 128);
  r.stages[1].shared.w2.clear();
  r.stages[1].wo_b[0].suh -= 1;
  r.stages[0].wo_b.push_back(r.stages[0].wo_b[0]);
  r.stages[0].attn_sink -= 1;
  r.stages[2].wo_a.fp8 -= 1;
  r.stages[0].wo_a.fp8_scale -= 1;
  r.markov_head.bits -= r.markov_head.columns;
  EXPECT_THAT(Check(whole, ranks).differences,
              ElementsAre("mtp.0.attn.attn_sink, rank 1: bytes differ",
                          "mtp.0.attn.wo_a, rank 1: bytes differ",
                          "mtp.0.attn.wo_b, rank 1: extends beyond its part",
                          "mtp.1.attn.wo_b, rank 1: decoded weights differ",
                          "mtp.1.attn.wq_b, rank 1: decoded weights differ",
                          "mtp.1.ffn.experts.7.w2, rank 1: decoded weights differ",
                          "mtp.1.ffn.shared_experts.w2, rank 1: does not cover its part",
                          "mtp.2.attn.wo_a, rank 1: bytes differ",
                          "mtp.2.markov_head.head.weight, rank 1: bytes differ"));
}

}  // namespace
}  // namespace tp2
