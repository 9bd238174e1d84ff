// Files: maps, bounded reads, writes that are never seen half done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>

#include "libcore/base/file.h"

namespace tp2 {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "tp2_file_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  int EntryCount() const {
    return static_cast<int>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(FileTest, MapsWhatWasWritten) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "hello", IfExists::kRefuse).ok());
  const auto file = MappedFile::Open(Path("a"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()),
            "hello");
}

TEST_F(FileTest, RefusesWhatIsNotAFile) {
  for (const std::string& path : {Path("missing"), folder_.string()}) {
    const auto file = MappedFile::Open(path);
    EXPECT_EQ(file.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(path));
  }
  ASSERT_TRUE(WriteFileAtomically(Path("empty"), "", IfExists::kRefuse).ok());
  EXPECT_FALSE(MappedFile::Open(Path("empty")).ok());
}

TEST_F(FileTest, OpeningAFifoDoesNotHang) {
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_FALSE(MappedFile::Open(Path("fifo")).ok());
  EXPECT_FALSE(ReadTextFile(Path("fifo"), 10).ok());
}

TEST_F(FileTest, ReadsUpToTheLimit) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "12345", IfExists::kRefuse).ok());
  EXPECT_EQ(*ReadTextFile(Path("a"), 5), "12345");
  EXPECT_THAT(std::string(ReadTextFile(Path("a"), 4).status().message()), HasSubstr("limit of 4"));
}

TEST_F(FileTest, AnUncommittedFileLeavesNothing) {
  {
    auto writer = AtomicFileWriter::Create(Path("a"), IfExists::kRefuse);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->Append("half").ok());
    EXPECT_FALSE(fs::exists(Path("a")));
  }
  EXPECT_EQ(EntryCount(), 0);
}

TEST_F(FileTest, RefusesToReplaceUnlessTold) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "old", IfExists::kRefuse).ok());
  EXPECT_FALSE(WriteFileAtomically(Path("a"), "new", IfExists::kRefuse).ok());
  EXPECT_EQ(*ReadTextFile(Path("a"), 10), "old");
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "new", IfExists::kReplace).ok());
  EXPECT_EQ(*ReadTextFile(Path("a"), 10), "new");
  EXPECT_EQ(EntryCount(), 1);
}

TEST_F(FileTest, AFileThatAppearsMeanwhileIsKept) {
  auto writer = AtomicFileWriter::Create(Path("a"), IfExists::kRefuse);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "theirs", IfExists::kRefuse).ok());
  EXPECT_FALSE(writer->Commit().ok());
  EXPECT_EQ(*ReadTextFile(Path("a"), 10), "theirs");
}

TEST_F(FileTest, AMovedMapStaysReadable) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "x", IfExists::kRefuse).ok());
  auto file = MappedFile::Open(Path("a"));
  ASSERT_TRUE(file.ok());
  MappedFile other = std::move(*file);
  MappedFile third;
  third = std::move(other);
  EXPECT_EQ(third.bytes().size(), 1u);
}

}  // namespace
}  // namespace tp2
