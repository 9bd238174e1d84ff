// Whole runs: the digest over everything a drafter puts out is one number, whatever computes it.
#include <gtest/gtest.h>

#include "libcore/drafter/make_engine.h"
#include "libcore/parity/self_run.h"
#include "tests/gpu/op_pair.h"
#include "tests/support/golden.h"

namespace tp2 {
namespace {

std::string FolderOf(const std::string& model) {
  return model == "golden" ? GoldenFolder() : SyntheticFolder(model);
}

uint64_t DigestOf(const EngineOptions& options, int rounds) {
  const auto engine = MakeEngine(options);
  if (!engine.ok()) {
    ADD_FAILURE() << engine.status();
    return 0;
  }
  const auto result = RunSelf(**engine, {.rounds = rounds});
  if (!result.ok()) {
    ADD_FAILURE() << result.status();
    return 1;
  }
  return result->digest;
}

class EngineGpuTest : public testing::TestWithParam<std::string> {};

TEST_P(EngineGpuTest, HasTheDigestOfTheCpuInEveryModeWithAndWithoutGraphs) {
  TP2_NEEDS_GPU();
  const std::string folder = FolderOf(GetParam());
  const int rounds = GetParam() == "medium" ? 12 : 41;
  const uint64_t expected = DigestOf({.model_dir = folder, .backend = "cpu"}, rounds);
  for (const char* mode : {"one-card", "emulated"}) {
    for (const bool uses_graphs : {false, true}) {
      EXPECT_EQ(
          DigestOf(
              {.model_dir = folder, .backend = "cuda", .mode = mode, .uses_graphs = uses_graphs},
              rounds),
          expected)
          << mode << (uses_graphs ? " graphs" : " eager");
    }
  }
}

// The stand-ins' numbers mean nothing, but both op sets stand in with the same arithmetic.
TEST_P(EngineGpuTest, HasTheDigestOfTheCpuForOneRankAlone) {
  TP2_NEEDS_GPU();
  const std::string folder = FolderOf(GetParam());
  for (const char* mode : {"solo-0", "solo-1"}) {
    EXPECT_EQ(DigestOf({.model_dir = folder, .backend = "cuda", .mode = mode}, 8),
              DigestOf({.model_dir = folder, .backend = "cpu", .mode = mode}, 8))
        << mode;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EngineGpuTest,
                         testing::Values("golden", "tiny", "tiny-v4", "tiny-mixed", "medium"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace tp2
