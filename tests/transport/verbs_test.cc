// What RDMA needs no device for: private data and immediates, and what is said without a device.
#include "libcore/transport/verbs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libcore/transport/verbs_wire.h"

namespace tp2::transport {
namespace {

constexpr size_t kLeastSlotBytes = 64;

ConnectRequest SomeRequest() {
  return {.client = {1, 2, 3},
          .identity = {4, 5, 6},
          .ring = {.address = 0x7000'0000'1000, .remote_key = 0xABCD, .slot_bytes = 640}};
}

Refusal Decode(std::span<const std::byte> data) {
  ConnectRequest request;
  return DecodeRequest(data, SomeRequest().identity, kLeastSlotBytes, &request);
}

TEST(VerbsRequest, SurvivesItsWayAndThePaddingOfTheConnectionManager) {
  std::vector<std::byte> data(196);
  const auto bytes = EncodeRequest(SomeRequest());
  std::copy(bytes.begin(), bytes.end(), data.begin());
  ConnectRequest request;
  ASSERT_EQ(DecodeRequest(data, SomeRequest().identity, kLeastSlotBytes, &request), Refusal::kNone);
  EXPECT_EQ(request.client, SomeRequest().client);
  EXPECT_EQ(request.ring.address, SomeRequest().ring.address);
  EXPECT_EQ(request.ring.remote_key, SomeRequest().ring.remote_key);
  EXPECT_EQ(request.ring.slot_bytes, SomeRequest().ring.slot_bytes);
}

TEST(VerbsRequest, HasTheLayoutThatTheHeaderPromises) {
  const auto bytes = EncodeRequest(SomeRequest());
  EXPECT_EQ(std::memcmp(bytes.data(), "DSPR", 4), 0);
  EXPECT_EQ(bytes[4], std::byte{0x00});
  EXPECT_EQ(bytes[5], std::byte{0x01});
  EXPECT_EQ(bytes[8], std::byte{1});
  EXPECT_EQ(bytes[24], std::byte{4});
  EXPECT_EQ(bytes[41], std::byte{0x10});  // second byte of the address
  EXPECT_EQ(bytes[48], std::byte{0xCD});
  EXPECT_EQ(bytes[52], std::byte{0x80});
}

TEST(VerbsRequest, IsRefusedByTheFirstFieldThatIsWrong) {
  const auto good = EncodeRequest(SomeRequest());
  const struct {
    size_t offset;
    Refusal refusal;
  } cases[] = {{0, Refusal::kNotOurs},   {3, Refusal::kNotOurs},   {4, Refusal::kVersion},
               {5, Refusal::kVersion},   {6, Refusal::kNotOurs},   {7, Refusal::kNotOurs},
               {24, Refusal::kIdentity}, {39, Refusal::kIdentity}, {8, Refusal::kNone}};
  for (const auto& one : cases) {
    auto data = good;
    data[one.offset] ^= std::byte{0x40};
    EXPECT_EQ(Decode(data), one.refusal) << one.offset;
  }
  auto both = good;
  both[4] ^= std::byte{1};
  both[24] ^= std::byte{1};
  EXPECT_EQ(Decode(both), Refusal::kVersion);
}

TEST(VerbsRequest, IsRefusedWhenShortWhateverItHolds) {
  const auto good = EncodeRequest(SomeRequest());
  for (size_t count = 0; count < good.size(); ++count) {
    EXPECT_EQ(Decode(std::span(good).first(count)), Refusal::kNotOurs) << count;
  }
}

TEST(VerbsRequest, IsRefusedWithARingThatHoldsNoFrameOrIsNotInMemory) {
  const auto refusal_of = [](const RingAddress& ring) {
    ConnectRequest request = SomeRequest();
    request.ring = ring;
    return Decode(EncodeRequest(request));
  };
  EXPECT_EQ(refusal_of({.address = 4096, .slot_bytes = kLeastSlotBytes}), Refusal::kNone);
  EXPECT_EQ(refusal_of({.address = 4096, .slot_bytes = kLeastSlotBytes - 1}), Refusal::kRing);
  EXPECT_EQ(refusal_of({.address = 4096, .slot_bytes = std::numeric_limits<uint32_t>::max()}),
            Refusal::kRing);
  EXPECT_EQ(refusal_of({.address = 0, .slot_bytes = 640}), Refusal::kRing);
  EXPECT_EQ(refusal_of({.address = std::numeric_limits<uint64_t>::max() - 4096, .slot_bytes = 640}),
            Refusal::kRing);
}

TEST(VerbsAcceptance, SurvivesItsWayAndIsRefusedWhenItIsNoneOfOurs) {
  const Acceptance sent{.instance = {9}, .ring = {.address = 8192, .slot_bytes = 4'194'368}};
  const auto good = EncodeAcceptance(sent);
  Acceptance received;
  ASSERT_EQ(DecodeAcceptance(good, kLeastSlotBytes, &received), Refusal::kNone);
  EXPECT_EQ(received.instance, sent.instance);
  EXPECT_EQ(received.ring.slot_bytes, sent.ring.slot_bytes);
  const struct {
    size_t offset;
    Refusal refusal;
  } cases[] = {{0, Refusal::kNotOurs},
               {4, Refusal::kVersion},
               {6, Refusal::kNotOurs},
               {47, Refusal::kNotOurs}};
  for (const auto& one : cases) {
    auto data = good;
    data[one.offset] ^= std::byte{1};
    EXPECT_EQ(DecodeAcceptance(data, kLeastSlotBytes, &received), one.refusal) << one.offset;
  }
  EXPECT_EQ(DecodeAcceptance(std::span(good).first(47), kLeastSlotBytes, &received),
            Refusal::kNotOurs);
  EXPECT_EQ(DecodeAcceptance(good, sent.ring.slot_bytes + 1, &received), Refusal::kRing);
}

TEST(VerbsRejection, CarriesEveryCodeAndNothingElse) {
  for (const Refusal refusal :
       {Refusal::kNotOurs, Refusal::kVersion, Refusal::kIdentity, Refusal::kRing,
        Refusal::kNotAllowed, Refusal::kTooMany, Refusal::kResources}) {
    EXPECT_EQ(DecodeRejection(EncodeRejection(refusal)), refusal);
    EXPECT_STRNE(RefusalName(refusal), "an unknown reason");
  }
  EXPECT_EQ(DecodeRejection({}), Refusal::kNotOurs);
  for (const uint16_t unknown : {0, 8, 0xFFFF}) {
    EXPECT_EQ(DecodeRejection(EncodeRejection(static_cast<Refusal>(unknown))), Refusal::kNotOurs);
  }
}

TEST(VerbsImmediate, PacksSlotNumberAndKindIntoTheirBits) {
  EXPECT_EQ(PackImmediate({.slot = 0, .number = 5}), 5u);
  EXPECT_EQ(PackImmediate({.slot = 1, .number = kFrameNumbers + 7}), 0x01000007u);
  EXPECT_EQ(PackImmediate({.slot = 1, .is_release = true, .number = 7}), 0x81000007u);
  for (const int slot : {0, 1}) {
    for (const bool is_release : {false, true}) {
      const Immediate sent{.slot = slot, .is_release = is_release, .number = kFrameNumbers - 1};
      const auto received = UnpackImmediate(PackImmediate(sent));
      ASSERT_TRUE(received.has_value());
      EXPECT_EQ(received->slot, slot);
      EXPECT_EQ(received->is_release, is_release);
      EXPECT_EQ(received->number, sent.number);
    }
  }
}

TEST(VerbsImmediate, RefusesBitsThatMeanNothing) {
  for (int bit = 25; bit < 31; ++bit) EXPECT_FALSE(UnpackImmediate(1u << bit).has_value()) << bit;
}

// Both answers are one line for the operator; which of them depends on how this was built.
void ExpectNoRdma(const absl::Status& status) {
  EXPECT_TRUE(status.code() == absl::StatusCode::kUnavailable ||
              status.code() == absl::StatusCode::kUnimplemented)
      << status;
  EXPECT_EQ(status.message().find("RDMA: expected "), 0u) << status;
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
}

TEST(VerbsWithoutADevice, SaysSoAndOffersTcp) {
  if (std::filesystem::exists("/dev/infiniband/rdma_cm")) GTEST_SKIP() << "there is a device";
  const FrameRule rule{.max_body_bytes = 64, .sizer = [](std::span<const std::byte>) {
                         return std::optional<uint32_t>(0);
                       }};
  const TcpAddress address{.host = "127.0.0.1", .port = 1};
  const absl::Status listening = VerbsListen(address, rule, {}).status();
  const absl::Status connecting = VerbsConnect(address, rule, {}, 1000).status();
  ExpectNoRdma(listening);
  ExpectNoRdma(connecting);
  EXPECT_NE(listening.message().find("use TCP"), std::string::npos) << listening;
}

}  // namespace
}  // namespace tp2::transport
