// The shape of an error: `what: expected X, got Y (where); next step` on one line.
#include <gtest/gtest.h>

#include <string>

#include "libcore/base/error.h"

namespace tp2 {
namespace {

TEST(Error, LeavesOutWhatIsEmpty) {
  const absl::Status whole = MakeError(
      absl::StatusCode::kInvalidArgument,
      {.what = "dim", .expected = "128", .got = "64", .where = "x.json", .next = "repair it"});
  EXPECT_EQ(whole.message(), "dim: expected 128, got 64 (x.json); repair it");
  const absl::Status part = MakeError(absl::StatusCode::kDataLoss, {.what = "dim", .got = "64"});
  EXPECT_EQ(part.message(), "dim: got 64");
  EXPECT_EQ(part.code(), absl::StatusCode::kDataLoss);
}

// A key of a hostile config.json broke the error into two lines.
TEST(Error, StaysOneLineWhateverItQuotes) {
  const absl::Status status =
      MakeError(absl::StatusCode::kInvalidArgument,
                {.what = "key \"a\nb\"", .got = "\r\x1b[2J", .where = "caf\u00e9\x7f"});
  EXPECT_EQ(status.message(), "key \"a\\x0ab\": got \\x0d\\x1b[2J (caf\u00e9\\x7f)");
}

}  // namespace
}  // namespace tp2
