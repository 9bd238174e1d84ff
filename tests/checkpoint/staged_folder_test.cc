#include "libcore/checkpoint/staged_folder.h"

#include <gtest/gtest.h>

#include "tests/checkpoint/editable_checkpoint.h"

namespace tp2 {
namespace {

namespace fs = std::filesystem;

void Touch(const std::string& path) {
  ASSERT_TRUE(WriteFileAtomically(path, "x", IfExists::kReplace).ok());
}

TEST(StagedFolder, AppearsAtCommitAndNotBefore) {
  TempDir dir;
  auto folder = StagedFolder::Create(dir.File("out/"), IfExists::kRefuse);
  ASSERT_TRUE(folder.ok()) << folder.status();
  Touch(folder->path() + "/config.json");
  EXPECT_FALSE(fs::exists(dir.File("out")));
  ASSERT_TRUE(folder->Commit().ok());
  EXPECT_TRUE(fs::exists(dir.File("out/config.json")));
}

TEST(StagedFolder, LeavesNothingBehindWithoutCommit) {
  TempDir dir;
  {
    auto folder = StagedFolder::Create(dir.File("out"), IfExists::kRefuse);
    ASSERT_TRUE(folder.ok());
    Touch(folder->path() + "/config.json");
  }
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(StagedFolder, RefusesFoldersWithFilesUnlessReplacing) {
  TempDir dir;
  fs::create_directory(dir.File("out"));
  EXPECT_TRUE(StagedFolder::Check(dir.File("out"), IfExists::kRefuse).ok());
  Touch(dir.File("out/config.json"));
  ExpectRefusal(StagedFolder::Create(dir.File("out"), IfExists::kRefuse).status(),
                absl::StatusCode::kInvalidArgument, {"a folder with files", "--force"});
  auto folder = StagedFolder::Create(dir.File("out"), IfExists::kReplace);
  ASSERT_TRUE(folder.ok()) << folder.status();
  Touch(folder->path() + "/model.safetensors");
  {
    StagedFolder committed = std::move(*folder);
    ASSERT_TRUE(committed.Commit().ok());
  }
  EXPECT_TRUE(fs::exists(dir.File("out/model.safetensors")));
  EXPECT_FALSE(fs::exists(dir.File("out/config.json")));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);
}

TEST(StagedFolder, NeverReplacesAnythingButACheckpoint) {
  TempDir dir;
  fs::create_directory(dir.File("out"));
  Touch(dir.File("out/config.json"));
  Touch(dir.File("out/thesis.tex"));
  ExpectRefusal(StagedFolder::Create(dir.File("out"), IfExists::kReplace).status(),
                absl::StatusCode::kInvalidArgument, {"also thesis.tex"});
  Touch(dir.File("file"));
  ExpectRefusal(StagedFolder::Create(dir.File("file"), IfExists::kReplace).status(),
                absl::StatusCode::kInvalidArgument, {"something else"});
  ExpectRefusal(StagedFolder::Create(dir.File("no/parent"), IfExists::kRefuse).status(),
                absl::StatusCode::kInvalidArgument, {"check the path"});
}

TEST(StagedFolder, LooksAgainBeforeItReplaces) {
  TempDir dir;
  auto folder = StagedFolder::Create(dir.File("out"), IfExists::kRefuse);
  ASSERT_TRUE(folder.ok());
  Touch(folder->path() + "/config.json");
  fs::create_directory(dir.File("out"));
  Touch(dir.File("out/thesis.tex"));
  EXPECT_FALSE(folder->Commit().ok());
  EXPECT_TRUE(fs::exists(dir.File("out/thesis.tex")));
}

}  // namespace
}  // namespace tp2
