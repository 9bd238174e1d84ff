// The texts behind the config and numerics digests.
#include "libcore/contract/digests.h"

#include <gtest/gtest.h>

namespace tp2::contract {
namespace {

TEST(ConfigDigest, CoversSortedLinesOfBothSides) {
  EXPECT_EQ(ConfigText("window=8\narch=v41\n"),
            "arch=v41\ncontract.block_rows=5\ncontract.row_dtype=bf16\n"
            "contract.rows_per_message=128\ncontract.version=256\nwindow=8\n");
  EXPECT_EQ(ConfigDigest("a=1\nb=2\n"), ConfigDigest("b=2\na=1"));
  EXPECT_NE(ConfigDigest("a=1\n"), ConfigDigest("a=2\n"));
}

TEST(NumericsDigest, BeginsWithTheVersion) {
  const Sha256Digest digest = NumericsDigest({.version = 0x0102030405060708u});
  EXPECT_EQ(digest[0], 8);
  EXPECT_EQ(digest[7], 1);
  EXPECT_EQ(NumericsVersionOf(digest), 0x0102030405060708u);
}

TEST(NumericsDigest, DependsOnTheMachineOnlyWhenBitsAreNotPortable) {
  const NumericsFacts cpu{.version = 1, .backend = "cpu"};
  NumericsFacts pair{.version = 1, .tp = 2, .backend = "cuda", .device_names = {"card"}};
  EXPECT_EQ(NumericsDigest(cpu), NumericsDigest(pair));
  pair.portable_bits = false;
  NumericsFacts other = pair;
  other.device_names = {"another card"};
  EXPECT_NE(NumericsDigest(cpu), NumericsDigest(pair));
  EXPECT_NE(NumericsDigest(other), NumericsDigest(pair));
}

}  // namespace
}  // namespace tp2::contract
