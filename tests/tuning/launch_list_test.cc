// The list of launches is what a drafter asks its op set for: no launch more, none less.
#include "libcore/drafter/launch_list.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "libcore/checkpoint/shard_set.h"
#include "libcore/drafter/cpu_drafter-inl.h"
#include "libcore/exl3/linear.h"
#include "libcore/model/synthetic_shape.h"
#include "libcore/parity/self_run.h"
#include "tests/support/temp_model.h"

namespace tp2 {
namespace {

std::set<std::string> launched;  // by every LaunchRecorder

// The CPU op set, which notes the launches that CudaOps would make.
class LaunchRecorder : public CpuOps<Bf16> {
 public:
  using Base = CpuOps<Bf16>;
  using Base::Base;

  int PaddedRows(int rows) const { return InsertBucketOf(rows); }
  void Linear(int rank, std::span<const LinearOpArgs> products) {
    for (size_t begin = 0; begin < products.size();) {
      std::vector<const exl3::MatrixView*> together;
      while (begin < products.size() && together.size() < 8 &&
             products[begin].rows == products[begin - together.size()].rows &&
             products[begin].matrix->k == products[begin - together.size()].matrix->k) {
        together.push_back(products[begin++].matrix);
      }
      Note(together, products[begin - 1].rows);
    }
    Base::Linear(rank, products);
  }
  void Latents(int rank, const LatentArgs<Bf16>& args) {
    Note({args.wq_b.matrix}, args.wq_b.rows);
    Base::Latents(rank, args);
  }
  void GroupedOutput(int rank, const GroupedOutputArgs& args) {
    for (size_t begin = 0; begin < args.wo_a->slices.size(); begin += 8) {
      std::vector<const exl3::MatrixView*> together;
      for (size_t i = begin; i < std::min(begin + 8, args.wo_a->slices.size()); ++i) {
        together.push_back(&args.wo_a->slices[i]);
      }
      Note(together, args.rows);
    }
    Base::GroupedOutput(rank, args);
  }
  void Experts(int rank, const ExpertsArgs& args) {
    const RankExpert& shared = args.stage->shared;
    Note({&shared.w1, &shared.w3}, args.rows);
    std::vector<const exl3::MatrixView*> down;
    for (const exl3::MatrixView& half : shared.w2) down.push_back(&half);
    Note(down, args.rows);
    Base::Experts(rank, args);
  }
  void AllReduce(std::span<const AllReduceArgs<Bf16>> ranks) {
    if (ranks.size() > 1) {
      launched.insert("all_reduce/w" + std::to_string(int64_t{ranks[0].rows} * dim));
    }
    Base::AllReduce(ranks);
  }

  static int dim;

 private:
  static void Note(const std::vector<const exl3::MatrixView*>& matrices, int rows) {
    if (rows == 0) return;
    std::map<int, int> blocks;
    for (const exl3::MatrixView* matrix : matrices) {
      if (exl3::HasPortableBits(*matrix)) blocks[matrix->bits] += matrix->n / 128;
    }
    for (int done = 0; done < rows; done += 24) {
      const int bucket = (std::min(24, rows - done) + 3) / 4 * 4;
      for (const auto& [bits, count] : blocks) {
        launched.insert("product/K" + std::to_string(bits) + "/k" + std::to_string(matrices[0]->k) +
                        "/b" + std::to_string(count) + "/r" + std::to_string(bucket));
      }
    }
  }
};
int LaunchRecorder::dim = 0;

class LaunchListTest : public testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(LaunchListTest, IsWhatADrafterLaunches) {
  const auto [shape, tp] = GetParam();
  const TempModel model(shape.c_str());
  auto checkpoint = Checkpoint::Open(model.dir());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const DrafterConfig config = (*checkpoint)->config();
  LaunchRecorder::dim = config.dim;
  std::vector<ShardPlan> plans;
  for (int rank = 0; rank < tp; ++rank) plans.push_back(*MakeShardPlan(config, tp, rank));
  launched.clear();
  const auto drafter = MakeCpuDrafter<LaunchRecorder>(*std::move(checkpoint), plans, {});
  const auto grid = RunGrid(*drafter, {});
  ASSERT_TRUE(grid.ok()) << grid.status();
  const auto shards = OpenShards(model.dir());
  const auto launches = ListLaunches(config, std::vector<int>{tp}, FormsIn(shards->tensors));
  ASSERT_TRUE(launches.ok()) << launches.status();
  std::set<std::string> listed;
  for (const tuning::KernelKey& key : launches->Keys()) listed.insert(tuning::KeyName(key));
  for (const std::string& key : launched) EXPECT_EQ(listed.count(key), 1u) << key << " is missing";
  for (const std::string& key : listed) EXPECT_EQ(launched.count(key), 1u) << key << " is unused";
}

INSTANTIATE_TEST_SUITE_P(Models, LaunchListTest,
                         testing::Combine(testing::Values(std::string("tiny"), "tiny-v4",
                                                          "tiny-mixed"),
                                          testing::Values(1, 2)));

TEST(LaunchList, OfTheFullModelHasNoChoiceForTheWholeHeadAlone) {
  const DrafterConfig config = FindSyntheticShape("v41-flash")->config;
  const MatrixForms forms = MissionForms(config);
  const auto both = ListLaunches(config, std::vector<int>{1, 2}, forms);
  ASSERT_TRUE(both.ok()) << both.status();
  std::set<std::string> without_choice;
  for (const tuning::ProductLaunch& launch : both->products) {
    if (!launch.has_room_for_sums()) without_choice.insert(launch.what);
  }
  EXPECT_EQ(without_choice, std::set<std::string>{"head"});
  EXPECT_EQ(both->reduces.size(), 4u);
  EXPECT_EQ(ListLaunches(config, std::vector<int>{1}, forms)->reduces.size(), 0u);
}

TEST(LaunchList, WithoutJoiningEveryMatrixHasItsOwn) {
  const DrafterConfig config = FindSyntheticShape("v41-flash")->config;
  const MatrixForms forms = MissionForms(config);
  const auto alone = ListLaunches(config, std::vector<int>{1}, forms, /*joins_products=*/false);
  ASSERT_TRUE(alone.ok()) << alone.status();
  for (const tuning::ProductLaunch& launch : alone->products) {
    EXPECT_EQ(launch.job_count, 1) << launch.what;
  }
}

}  // namespace
}  // namespace tp2
