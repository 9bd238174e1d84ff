// Secrets: what a file must be like, and the MAC against a published test vector.
#include "libcore/base/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace tp2 {
namespace {

class SecretFile : public ::testing::Test {
 protected:
  std::string Write(const std::string& text, mode_t mode) {
    const std::string path = ::testing::TempDir() + "/secret_test." + std::to_string(::getpid());
    std::ofstream(path, std::ios::binary) << text;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    path_ = path;
    return path;
  }
  ~SecretFile() override { std::filesystem::remove(path_); }
  std::string path_;
};

TEST_F(SecretFile, IsReadWithoutTheWhiteSpaceAtItsEnd) {
  const auto secret = Secret::ReadFile(Write("0123456789abcdef \r\n\n", 0600));
  ASSERT_TRUE(secret.ok()) << secret.status();
  EXPECT_EQ(secret->Mac({}), Secret::FromBytes("0123456789abcdef")->Mac({}));
}

TEST_F(SecretFile, IsRefusedWhenOthersCanReadIt) {
  for (const mode_t mode : {0640, 0604, 0620}) {
    const auto secret = Secret::ReadFile(Write("0123456789abcdef", mode));
    EXPECT_EQ(secret.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(secret.status().message().find("chmod 600"), absl::string_view::npos);
  }
}

TEST_F(SecretFile, IsRefusedWhenItIsTooShortTooLongOrMissing) {
  EXPECT_FALSE(Secret::ReadFile(Write("0123456789abcde\n", 0600)).ok());
  EXPECT_FALSE(Secret::ReadFile(Write(std::string(Secret::kMaxBytes + 1, 'x'), 0600)).ok());
  EXPECT_TRUE(Secret::ReadFile(Write(std::string(Secret::kMaxBytes, 'x'), 0600)).ok());
  EXPECT_FALSE(Secret::ReadFile("/nonexistent/secret").ok());
}

TEST_F(SecretFile, IsNeverQuotedInAnError) {
  const auto secret = Secret::ReadFile(Write("hunter2", 0600));
  EXPECT_EQ(secret.status().message().find("hunter2"), absl::string_view::npos);
}

TEST(Secret, MacIsHmacSha256OfTheJoinedParts) {
  // RFC 4231, test case 6: a key longer than the hash's block.
  const Secret secret = Secret::FromBytes(std::string(131, '\xaa')).value();
  const std::string_view text = "Test Using Larger Than Block-Size Key - Hash Key First";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(Hex(secret.Mac({bytes.first(10), bytes.subspan(10)})),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Secret, MovedFromSecretsAreEmpty) {
  Secret from = Secret::FromBytes("0123456789abcdef").value();
  const Sha256Digest mac = from.Mac({});
  const Secret to = std::move(from);
  EXPECT_EQ(to.Mac({}), mac);
}

}  // namespace
}  // namespace tp2
