// Digests against published values; random streams against themselves.
#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string>

#include "libcore/base/digest.h"
#include "libcore/base/rng.h"

namespace tp2 {
namespace {

TEST(Digest, Sha256OfAbc) {
  EXPECT_EQ(Hex(Sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, Xxh3OfNothing) { EXPECT_EQ(Hex64(Xxh3().Finish()), "2d06800538d394c2"); }

TEST(Digest, StreamingEqualsOneCall) {
  const std::string text(1000, 'x');
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  Xxh3 digest;
  for (size_t at = 0; at < bytes.size(); at += 7) {
    digest.Update(bytes.subspan(at, std::min<size_t>(7, bytes.size() - at)));
  }
  EXPECT_EQ(digest.Finish(), Xxh3::Of(bytes));
}

TEST(Rng, IsTheSameOnEveryMachine) {
  // Recorded once: synthetic checkpoints of all users depend on these values.
  EXPECT_EQ(RandomAt(1, 0), Rng(1).Next());
  EXPECT_EQ(Mix64(0), 0xE220A8397B1DCDAFu);
}

TEST(Rng, NamesAndSeedsGiveDifferentStreams) {
  std::set<uint64_t> streams;
  for (uint64_t seed : {1, 2, 3}) {
    for (const char* name : {"a", "b", "mtp.0.x", "mtp.1.x"}) streams.insert(StreamOf(seed, name));
  }
  EXPECT_EQ(streams.size(), 12u);
}

TEST(Rng, SignedStaysInItsRange) {
  Rng rng(4);
  float low = 1, high = -1;
  for (int i = 0; i < 10000; ++i) {
    const float value = rng.Signed();
    low = std::min(low, value);
    high = std::max(high, value);
  }
  EXPECT_GE(low, -1.0f);
  EXPECT_LT(high, 1.0f);
  EXPECT_LT(low, -0.99f);
  EXPECT_GT(high, 0.99f);
}

}  // namespace
}  // namespace tp2
