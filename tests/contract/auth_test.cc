// Proofs against values computed with Python's hmac module, and what they cover.
#include "libcore/contract/auth.h"

#include <gtest/gtest.h>

#include "tests/support/contract_bytes.h"

namespace tp2::contract {
namespace {

using testing::Counting;

std::vector<std::byte> Body() {
  std::vector<std::byte> body(kHelloBytes);
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<std::byte>(i);
  return body;
}

const Secret& TestSecret() {
  static const Secret secret = Secret::FromBytes("0123456789abcdef").value();
  return secret;
}

TEST(Auth, ProofsAreTheDocumentedMacs) {
  EXPECT_EQ(Hex(ClientProof(TestSecret(), Counting<32>(1), Body())),
            "305e7347001c04d48af018f398ff083e0d4548946c36635adf33cbe15900e8ea");
  EXPECT_EQ(Hex(WorkerProof(TestSecret(), Counting<32>(1), Body())),
            "9615c30f460dbfbb66ff5fa56ac4ec7c7ff83472fe7358952025f47ef060d80f");
}

TEST(Auth, EveryByteBeforeTheProofCountsAndNoneOfTheProof) {
  const Proof proof = ClientProof(TestSecret(), Counting<32>(1), Body());
  for (size_t at = 0; at < kHelloBytes; ++at) {
    std::vector<std::byte> changed = Body();
    changed[at] ^= std::byte{0x80};
    const bool is_equal = MacsEqual(ClientProof(TestSecret(), Counting<32>(1), changed), proof);
    EXPECT_EQ(is_equal, at >= kHelloProofOffset) << at;
  }
}

TEST(Auth, ChallengeAndSecretCount) {
  const Proof proof = ClientProof(TestSecret(), Counting<32>(1), Body());
  EXPECT_FALSE(MacsEqual(ClientProof(TestSecret(), Counting<32>(2), Body()), proof));
  const Secret other = Secret::FromBytes("0123456789abcdeF").value();
  EXPECT_FALSE(MacsEqual(ClientProof(other, Counting<32>(1), Body()), proof));
}

}  // namespace
}  // namespace tp2::contract
