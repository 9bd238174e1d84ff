// The 64-byte header: layout, checksum and every way to refuse one.
#include <gtest/gtest.h>

#include <cstring>

#include "libcore/contract/crc32c.h"
#include "libcore/contract/frame.h"
#include "tests/support/contract_bytes.h"

namespace tp2::contract {
namespace {

using testing::HexOf;

using HeaderBytes = std::array<std::byte, kHeaderBytes>;

FrameHeader Filled() {
  return {.version = kVersion,
          .type = 5,
          .flags = kFlagBodyHash,
          .session = 0x1112131415161718u,
          .seq = 0x2122232425262728u,
          .body_bytes = 0x00010203u,
          .status = 0,
          .time_us = 0x3132333435363738u,
          .body_hash = 0x4142434445464748u,
          .trace_id = 0x5152535455565758u};
}

HeaderBytes Encoded(const FrameHeader& header) {
  HeaderBytes bytes;
  EncodeHeader(header, bytes);
  return bytes;
}

// Changes one byte and makes the checksum right again.
Code DecodeWith(size_t offset, uint8_t value, Direction direction = Direction::kRequest) {
  HeaderBytes bytes = Encoded(Filled());
  bytes[offset] = static_cast<std::byte>(value);
  std::fill_n(bytes.begin() + 12, 4, std::byte{0});
  const uint32_t crc = Crc32c(bytes);
  std::memcpy(bytes.data() + 12, &crc, sizeof(crc));
  FrameHeader header;
  return DecodeHeader(bytes, direction, &header);
}

TEST(Crc32c, GivesTheCheckValueOfTheCastagnoliPolynomial) {
  const std::string_view text = "123456789";
  EXPECT_EQ(Crc32c(std::as_bytes(std::span(text))), 0xE3069283u);
}

TEST(FrameHeader, HasTheseBytes) {
  EXPECT_EQ(HexOf(Encoded(Filled())),
            "4453504b00010500010000008e74fd87181716151413121128272625242322210302010000000000"
            "383736353433323148474645444342415857565554535251");
}

TEST(FrameHeader, SurvivesARoundTrip) {
  FrameHeader decoded;
  ASSERT_EQ(DecodeHeader(Encoded(Filled()), Direction::kRequest, &decoded), Code::kOk);
  EXPECT_EQ(HexOf(Encoded(decoded)), HexOf(Encoded(Filled())));
}

TEST(FrameHeader, IsRefusedWhenShort) {
  FrameHeader header;
  const HeaderBytes bytes = Encoded(Filled());
  EXPECT_EQ(DecodeHeader(std::span(bytes).first(63), Direction::kRequest, &header),
            Code::kBadFrame);
}

TEST(FrameHeader, IsRefusedWhenAnyBitIsFlipped) {
  for (size_t bit = 0; bit < kHeaderBytes * 8; ++bit) {
    HeaderBytes bytes = Encoded(Filled());
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    FrameHeader header;
    EXPECT_EQ(DecodeHeader(bytes, Direction::kRequest, &header), Code::kBadFrame) << bit;
  }
}

TEST(FrameHeader, NamesAVersionItDoesNotSpeak) {
  EXPECT_EQ(DecodeWith(5, 2), Code::kVersionUnsupported);
  EXPECT_EQ(DecodeWith(4, 1), Code::kVersionUnsupported);
}

TEST(FrameHeader, RefusesFlagsOfTheOtherDirectionAndUnknownOnes) {
  EXPECT_EQ(DecodeWith(8, 0x01 | kFlagDebug), Code::kOk);
  EXPECT_EQ(DecodeWith(8, 0x01 | kFlagDraining), Code::kBadFrame);
  EXPECT_EQ(DecodeWith(8, 0x01 | kFlagCachedReply), Code::kBadFrame);
  EXPECT_EQ(DecodeWith(8, 0x11), Code::kBadFrame);
  EXPECT_EQ(DecodeWith(11, 0x80), Code::kBadFrame);
}

TEST(FrameHeader, AllowsReplyFlagsAndStatusInReplies) {
  FrameHeader filled = Filled();
  filled.flags = kReplyFlags;
  filled.status = 17;
  filled.body_bytes = 128;
  FrameHeader header;
  EXPECT_EQ(DecodeHeader(Encoded(filled), Direction::kReply, &header), Code::kOk);
  EXPECT_EQ(header.status, 17u);
}

TEST(FrameHeader, RefusesAStatusInARequest) { EXPECT_EQ(DecodeWith(36, 1), Code::kBadFrame); }

TEST(FrameHeader, RefusesABodyHashWithoutItsFlag) { EXPECT_EQ(DecodeWith(8, 0), Code::kBadFrame); }

TEST(FrameHeader, TakesTheLargestBodyAndRefusesOneByteMore) {
  FrameHeader filled = Filled();
  FrameHeader header;
  filled.body_bytes = kMaxBodyBytes;
  EXPECT_EQ(DecodeHeader(Encoded(filled), Direction::kRequest, &header), Code::kOk);
  EXPECT_EQ(RequestBodyBytes(Encoded(filled)), kMaxBodyBytes);
  filled.body_bytes = kMaxBodyBytes + 1;
  EXPECT_EQ(DecodeHeader(Encoded(filled), Direction::kRequest, &header), Code::kTooLarge);
  EXPECT_EQ(RequestBodyBytes(Encoded(filled)), std::nullopt);
  filled.body_bytes = kMaxReplyBytes - kHeaderBytes;
  EXPECT_EQ(ReplyBodyBytes(Encoded(filled)), kMaxReplyBytes - kHeaderBytes);
  filled.body_bytes += 1;
  EXPECT_EQ(ReplyBodyBytes(Encoded(filled)), std::nullopt);
}

TEST(FrameHeader, KnowsNineRequestTypes) {
  FrameHeader header;
  for (uint16_t type = 1; type <= 9; ++type) {
    header.type = type;
    EXPECT_TRUE(RequestType(header).has_value());
  }
  for (const uint16_t type : {0, 10, 0x8001, 0xFFFF}) {
    header.type = type;
    EXPECT_FALSE(RequestType(header).has_value()) << type;
  }
}

TEST(CodeRules, AreThirtyWithDistinctNumbersAndNames) {
  EXPECT_EQ(CodeRules().size(), 30u);
  for (const CodeRule& rule : CodeRules()) {
    EXPECT_EQ(FindCodeRule(static_cast<uint32_t>(rule.code)), &rule) << rule.name;
    for (const CodeRule& other : CodeRules()) {
      EXPECT_TRUE(&rule == &other || std::string(rule.name) != other.name);
    }
  }
  EXPECT_EQ(FindCodeRule(29), nullptr);
}

}  // namespace
}  // namespace tp2::contract
