// The committed digests: one set of bits on every machine, compiler and instruction set, in every
// mode.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "libcore/base/check.h"
#include "libcore/base/digest.h"
#include "libcore/base/file.h"
#include "libcore/base/json.h"
#include "libcore/base/thread_pool.h"
#include "libcore/checkpoint/synthetic.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/math/numerics.h"
#include "libcore/model/synthetic_shape.h"
#include "libcore/parity/self_run.h"
#include "tests/support/golden.h"

namespace tp2 {
namespace {

namespace fs = std::filesystem;

// A checkpoint folder for the name in digests.json; synthetic ones are made with seed 1 and removed
// afterwards.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& name) {
    if (name == "v41-tiny") {
      path_ = kGoldenDir;
      return;
    }
    std::string pattern = ::testing::TempDir() + "tp2_model_XXXXXX";
    TP2_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    is_ours_ = true;
    ThreadPool pool;
    const SyntheticShape* shape = FindSyntheticShape(name);
    TP2_CHECK(shape != nullptr);
    const absl::Status written = WriteSynthetic(*shape, 1, path_, pool);
    EXPECT_TRUE(written.ok()) << written;
  }
  ~ModelFolder() {
    if (is_ours_) fs::remove_all(path_);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool is_ours_ = false;
};

class GoldenDigests : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenDigests, AreTheCommittedOnesInEveryMode) {
  const auto text = ReadTextFile(TP2_SOURCE_DIR "/tests/golden/digests.json", 65536);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto golden = ParseJson(*text, "digests.json");
  ASSERT_TRUE(golden.ok()) << golden.status();
  EXPECT_EQ((*golden)["numerics_version"], kNumericsVersion);
  const std::string expected = (*golden)["digests"][GetParam()];
  const ModelFolder model(GetParam());
  for (const char* mode : {"one-card", "emulated"}) {
    const auto engine = MakeEngine({.model_dir = model.path(), .backend = "cpu", .mode = mode});
    ASSERT_TRUE(engine.ok()) << engine.status();
    EXPECT_TRUE((*engine)->info().portable_bits);
    const auto result = RunSelf(**engine, {.rounds = 41, .seed = 1});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(Hex64(result->digest), expected) << mode;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenDigests,
                         ::testing::Values("v41-tiny", "tiny", "tiny-v4", "medium"),
                         [](const auto& model) {
                           std::string name = model.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace tp2
