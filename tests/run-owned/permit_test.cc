// The rules of time in which a permit counts as withdrawn, on a clock of the test's own.
#include "cmd/run-owned/permit.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tp2::owned {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr char kName[] = "RX-TP2SAFE";

class PermitFile {
 public:
  PermitFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "permit.XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    Write("owner=RX-TP2SAFE\n");
  }
  ~PermitFile() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/PAIR_OK"; }
  void Write(const std::string& text) const { std::ofstream(path()) << text; }
  void Remove() const { std::filesystem::remove(path()); }

 private:
  std::string folder_;
};

TEST(PermitWatch, ToleratesAnEmptyPermitForLessThanTheTimeOfTwoLooks) {
  const PermitFile file;
  PermitWatch watch(file.path(), kName);
  EXPECT_EQ(watch.Check(0), std::nullopt);
  file.Write("");
  EXPECT_EQ(watch.Check(1000 * kNsPerMs), std::nullopt);
  EXPECT_EQ(watch.due_ns(), (1000 + PermitWatch::kConfirmMs) * kNsPerMs);
  EXPECT_EQ(watch.Check(1099 * kNsPerMs), std::nullopt);
  file.Write("again RX-TP2SAFE\n");
  EXPECT_EQ(watch.Check(1100 * kNsPerMs), std::nullopt);
  // Time begins anew with the next empty one.
  file.Write("");
  EXPECT_EQ(watch.Check(1200 * kNsPerMs), std::nullopt);
  EXPECT_EQ(watch.Check(1299 * kNsPerMs), std::nullopt);
  EXPECT_NE(watch.Check(1300 * kNsPerMs), std::nullopt);
}

TEST(PermitWatch, AnotherOwnerCountsAtTheFirstLook) {
  const PermitFile file;
  PermitWatch watch(file.path(), kName);
  EXPECT_EQ(watch.Check(0), std::nullopt);
  file.Write("owner=SOMEBODY\n");
  const std::optional<std::string> withdrawn = watch.Check(kNsPerMs);
  ASSERT_NE(withdrawn, std::nullopt);
  EXPECT_NE(withdrawn->find("'owner=SOMEBODY'"), std::string::npos) << *withdrawn;
}

TEST(PermitWatch, LooksAgainWithinTheTimeOfAPollWithoutAnyEvent) {
  const PermitFile file;
  PermitWatch watch(file.path(), kName);
  EXPECT_EQ(watch.Check(5 * kNsPerMs), std::nullopt);
  EXPECT_EQ(watch.due_ns(), (5 + PermitWatch::kPollMs) * kNsPerMs);
}

TEST(PermitWatch, MissingAndEmptyInTurnAreOneAbsence) {
  const PermitFile file;
  PermitWatch watch(file.path(), kName);
  EXPECT_EQ(watch.Check(0), std::nullopt);
  file.Write("");
  EXPECT_EQ(watch.Check(10 * kNsPerMs), std::nullopt);
  file.Remove();
  EXPECT_NE(watch.Check(110 * kNsPerMs), std::nullopt);
}

TEST(NamesOwner, TakesWholeWordsOnly) {
  for (const char* text :
       {"RX-TP2SAFE", "a,RX-TP2SAFE,b", "owner: RX-TP2SAFE\r\n", "x=RX-TP2SAFE"}) {
    EXPECT_TRUE(NamesOwner(text, kName)) << text;
  }
  for (const char* text :
       {"", "RX-TP2SAFE2", "xRX-TP2SAFE", "rx-tp2safe", "RX-TP2SAFE;", "\xEF\xBB\xBFRX-TP2SAFE"}) {
    EXPECT_FALSE(NamesOwner(text, kName)) << text;
  }
}

}  // namespace
}  // namespace tp2::owned
