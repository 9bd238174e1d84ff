// Bodies: golden bytes of every message, round trips, and the two rules of decoding: the length is
// exact and every reserved byte is zero.
#include "libcore/contract/codec.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/contract_bytes.h"

namespace tp2::contract {
namespace {

using testing::Counting;
using testing::HexOf;

HelloRequest FilledHello() {
  HelloRequest hello;
  hello.client_uuid = Counting<16>(0x10);
  hello.identity = Counting<32>(0x20);
  hello.config = Counting<32>(0x40);
  hello.vocab = 129280;
  hello.hidden = 5120;
  hello.taps = 3;
  hello.row_bytes = 30720;
  hello.window_rows = 128;
  hello.max_model_length = 1048576;
  hello.features = kFeatureMargin | kFeatureStrictNumerics;
  hello.numerics = Counting<32>(0x60);
  hello.client_name = "engine-7";
  hello.nonce = Counting<32>(0x80);
  hello.proof = Counting<32>(0xC0);
  return hello;
}

HelloReply FilledHelloReply() {
  HelloReply reply;
  reply.tp = 2;
  reply.instance = Counting<16>(0x01);
  reply.identity = Counting<32>(0x20);
  reply.config = Counting<32>(0x40);
  reply.numerics = Counting<32>(0x60);
  reply.session = 0x8182838485868788u;
  reply.features = kFeatureMargin;
  reply.requests = 4;
  reply.n_out = 5;
  reply.slots = 8;
  reply.window_rows = 128;
  reply.ring_rows = 144;
  reply.keepalive_ms = 1000;
  reply.idle_close_ms = 60000;
  reply.mismatch_field = kFieldConfig;
  reply.gpu0 = Counting<16>(0xA0);
  reply.gpu1 = Counting<16>(0xB0);
  reply.start_time_ns = 0x0102030405060708u;
  reply.vocab = 129280;
  reply.hidden = 5120;
  reply.max_model_length = 327680;
  reply.taps = 3;
  reply.proof = Counting<32>(0xE0);
  return reply;
}

StepMessage FilledStep(std::span<const std::byte> rows) {
  StepMessage step;
  step.entry_count = 2;
  step.n_out = 4;
  step.flags = kStepWantMargin | kStepWantConfidence;
  step.round = 77;
  step.rows = 3;
  step.row_bytes = 2;
  step.rows_offset = 64 + 2 * 64;
  step.row_area = rows;
  step.entries[0] = {.slot = 1,
                     .rows = 2,
                     .anchor = 9,
                     .generation = 0x0102030405060708u,
                     .position = 100,
                     .anchor_position = 102,
                     .first_row = 0,
                     .accepted_plus_one = 4,
                     .expected_length = 102,
                     .tag = 0xAA};
  step.entries[1] = {.slot = 2,
                     .rows = 1,
                     .anchor = 10,
                     .generation = 0x1112131415161718u,
                     .position = 200,
                     .anchor_position = 201,
                     .first_row = 2,
                     .expected_length = 201,
                     .tag = 0xBB};
  return step;
}

StepReply FilledStepReply() {
  StepReply reply;
  reply.entry_count = 1;
  reply.n_out = 2;
  reply.flags = 3;
  reply.round = 77;
  reply.queue_us = 1;
  reply.insert_us = 2;
  reply.draft_us = 3;
  reply.total_us = 4;
  reply.rank_error_bits = {5, 6};
  reply.epoch = 7;
  reply.failures_in_a_row = 8;
  reply.entries[0] = {.slot = 3,
                      .status = 0,
                      .window_rows = 128,
                      .generation = 0x0102030405060708u,
                      .length = 500,
                      .tokens = {11, 12, -1, -1, -1},
                      .confidence = {1.0f, -2.0f, 0, 0, 0},
                      .margin = {0.5f, 0.25f, 0, 0, 0},
                      .runner_up = {13, 14, 0, 0, 0}};
  return reply;
}

HealthReply FilledHealth() {
  HealthReply reply;
  reply.state = WorkerState::kDegraded;
  reply.tp = 2;
  reply.failures_in_a_row = 1;
  reply.steps = 2;
  reply.failed_steps = 3;
  reply.inserts = 4;
  reply.sessions = 5;
  reply.open_slots = 6;
  reply.uptime_us = 7;
  reply.last_good_step_age_us = 8;
  reply.rank_header_words = {9, 10};
  reply.epoch = 11;
  reply.resets = 12;
  reply.step_us_p50 = 13;
  reply.step_us_p99 = 14;
  reply.step_us_max = 15;
  reply.instance = Counting<16>(0x01);
  reply.identity = Counting<32>(0x20);
  reply.last_error = "timeout";
  return reply;
}

SlotsReply FilledSlots() {
  SlotsReply reply;
  reply.window_rows = 128;
  reply.ring_rows = 144;
  reply.instance_counter = 5;
  reply.slots.push_back({.slot = 2,
                         .state = SlotState::kLive,
                         .window_rows = 7,
                         .generation = 0x0102030405060708u,
                         .length = 300,
                         .tag = 0xCC});
  return reply;
}

// One message kind: its filled bytes, how to decode and encode them again, and which bytes are
// reserved.
struct Layout {
  std::string name;
  std::vector<std::byte> bytes = {};
  std::function<Code(ByteView, std::vector<std::byte>*)> decode_and_encode = {};
  std::vector<std::pair<size_t, size_t>> reserved;
  const char* golden;
};

template <class T>
Layout MakeLayout(std::string name, const T& filled, size_t body_bytes,
                  Code (*decode)(ByteView, T*), void (*encode)(const T&, Bytes),
                  std::vector<std::pair<size_t, size_t>> reserved, const char* golden) {
  Layout layout{.name = std::move(name), .reserved = std::move(reserved), .golden = golden};
  layout.bytes.resize(body_bytes);
  encode(filled, layout.bytes);
  layout.decode_and_encode = [=](ByteView bytes, std::vector<std::byte>* again) {
    T value;
    const Code code = decode(bytes, &value);
    if (code == Code::kOk) encode(value, *again);
    return code;
  };
  return layout;
}

std::vector<Layout> FixedLayouts() {
  return {
      MakeLayout("HELLO request", FilledHello(), kHelloBytes, DecodeHelloRequest,
                 EncodeHelloRequest, {},
                 "0001000000010001101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f"
                 "303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f5051525354555657"
                 "58595a5b5c5d5e5f00f9010000140000030001000078000080000500040008000000100080020000"
                 "1100000000000000606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f"
                 "656e67696e652d370000000000000000000000000000000000000000000000008081828384858687"
                 "88898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fc0c1c2c3c4c5c6c7c8c9cacbcccdcecf"
                 "d0d1d2d3d4d5d6d7d8d9dadbdcdddedf"),
      MakeLayout("HELLO reply", FilledHelloReply(), kHelloBytes, DecodeHelloReply, EncodeHelloReply,
                 {{222, 224}},
                 "00010000000102000102030405060708090a0b0c0d0e0f10202122232425262728292a2b2c2d2e2f"
                 "303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f5051525354555657"
                 "58595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f"
                 "888786858483828101000000000000000000400080020000040005000800800090008000e8030000"
                 "60ea000038000000a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf"
                 "080706050403020100f90100001400000000050003000000e0e1e2e3e4e5e6e7e8e9eaebecedeeef"
                 "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"),
      MakeLayout("CHALLENGE reply", ChallengeReply{.nonce = Counting<32>(0x01)}, kChallengeBytes,
                 DecodeChallengeReply, EncodeChallengeReply, {},
                 "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"),
      MakeLayout("OPEN request",
                 OpenRequest{.slot = kAnySlot, .tag = 0x0102030405060708u, .base = 9}, kOpenBytes,
                 DecodeOpenRequest, EncodeOpenRequest, {{2, 8}, {24, 32}},
                 "ffff000000000000080706050403020109000000000000000000000000000000"),
      MakeLayout("OPEN reply", OpenReply{.slot = 3, .generation = 0x0102030405060708u, .base = 9},
                 kOpenBytes, DecodeOpenReply, EncodeOpenReply, {{2, 8}, {24, 32}},
                 "0300000000000000080706050403020109000000000000000000000000000000"),
      MakeLayout("CLOSE request", CloseRequest{.slot = 3, .generation = 0x0102030405060708u},
                 kCloseBytes, DecodeCloseRequest, EncodeCloseRequest, {{2, 8}, {16, 32}},
                 "0300000000000000080706050403020100000000000000000000000000000000"),
      MakeLayout(
          "CLOSE reply",
          CloseReply{.slot = 3, .was_closed_before = true, .generation = 0x0102030405060708u},
          kCloseBytes, DecodeCloseReply, EncodeCloseReply, {{3, 8}, {16, 32}},
          "0300010000000000080706050403020100000000000000000000000000000000"),
      MakeLayout("INSERT reply",
                 InsertReply{.slot = 3,
                             .window_rows = 128,
                             .generation = 0x0102030405060708u,
                             .length = 500,
                             .insert_us = 42},
                 kInsertReplyBytes, DecodeInsertReply, EncodeInsertReply, {{4, 8}, {28, 64}},
                 "03008000000000000807060504030201f4010000000000002a000000000000000000000000000000"
                 "000000000000000000000000000000000000000000000000"),
      MakeLayout("STEP reply", FilledStepReply(), StepReplyBytes(1), DecodeStepReply,
                 EncodeStepReply,
                 {{48, 64}, {70, 72}, {108, 112}, {132, 136}, {156, 160}, {180, 192}},
                 "01000200030000004d00000000000000010000000200000003000000040000000500000006000000"
                 "07000000080000000000000000000000000000000000000003000000800000000807060504030201"
                 "f4010000000000000b0000000c000000ffffffffffffffffffffffff000000000000803f000000c0"
                 "000000000000000000000000000000000000003f0000803e00000000000000000000000000000000"
                 "0d0000000e000000000000000000000000000000000000000000000000000000"),
      MakeLayout("HEALTH reply", FilledHealth(), kHealthBytes, DecodeHealthReply, EncodeHealthReply,
                 {{84, 88}, {200, 256}},
                 "03000200010000000200000000000000030000000000000004000000000000000500000006000000"
                 "07000000000000000800000000000000090000000a0000000b0000000c0000000d0000000e000000"
                 "0f000000000000000102030405060708090a0b0c0d0e0f10202122232425262728292a2b2c2d2e2f"
                 "303132333435363738393a3b3c3d3e3f74696d656f75740000000000000000000000000000000000"
                 "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
                 "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
                 "00000000000000000000000000000000"),
      MakeLayout("SLOTS reply", FilledSlots(), SlotsReplyBytes(1), DecodeSlotsReply,
                 EncodeSlotsReply, {{6, 8}, {22, 24}},
                 "01008000900000000500000000000000020002000700000008070605040302012c01000000000000"
                 "cc00000000000000"),
  };
}

std::vector<std::byte> InsertBytes(std::span<const std::byte> rows) {
  std::vector<std::byte> bytes(kInsertHeadBytes + rows.size());
  EncodeInsertHead({.slot = 3,
                    .row_kind = 2,
                    .rows = 2,
                    .generation = 0x0102030405060708u,
                    .position = 100,
                    .expected_length = 102,
                    .row_bytes = 2,
                    .row_area = rows},
                   bytes);
  std::copy(rows.begin(), rows.end(), bytes.begin() + kInsertHeadBytes);
  return bytes;
}

std::vector<std::byte> StepBytes(std::span<const std::byte> rows) {
  std::vector<std::byte> bytes(StepHeadBytes(2) + rows.size());
  EncodeStepHead(FilledStep(rows), bytes);
  std::copy(rows.begin(), rows.end(), bytes.begin() + static_cast<ptrdiff_t>(StepHeadBytes(2)));
  return bytes;
}

TEST(Codec, MessagesHaveTheseBytes) {
  for (const Layout& layout : FixedLayouts()) {
    EXPECT_EQ(HexOf(layout.bytes), layout.golden) << layout.name;
  }
  EXPECT_EQ(HexOf(InsertBytes(testing::Rows(2, 2))),
            "03000200020000000807060504030201640000000000000066000000000000000200000000000000"
            "00000000000000000000000000000000000000000000000000010203");
  EXPECT_EQ(HexOf(StepBytes(testing::Rows(2, 3))),
            "02000400030000004d00000000000000030000000200000001000000c00000000000000000000000"
            "00000000000000000000000000000000000000000000000001000200090000000807060504030201"
            "6400000000000000660000000000000000000000040000006600000000000000aa00000000000000"
            "0000000000000000020001000a0000001817161514131211c800000000000000c900000000000000"
            "0200000000000000c900000000000000bb000000000000000000000000000000000102030405");
}

TEST(Codec, MessagesSurviveARoundTrip) {
  for (const Layout& layout : FixedLayouts()) {
    std::vector<std::byte> again(layout.bytes.size());
    ASSERT_EQ(layout.decode_and_encode(layout.bytes, &again), Code::kOk) << layout.name;
    EXPECT_EQ(again, layout.bytes) << layout.name;
  }
}

TEST(Codec, RefusesEveryOtherLength) {
  for (const Layout& layout : FixedLayouts()) {
    std::vector<std::byte> again(layout.bytes.size());
    for (size_t count = 0; count < layout.bytes.size(); ++count) {
      EXPECT_EQ(layout.decode_and_encode(ByteView(layout.bytes).first(count), &again),
                Code::kBadFrame)
          << layout.name << " " << count;
    }
    std::vector<std::byte> longer = layout.bytes;
    longer.push_back(std::byte{0});
    EXPECT_EQ(layout.decode_and_encode(longer, &again), Code::kBadFrame) << layout.name;
  }
}

TEST(Codec, RefusesEveryReservedByteThatIsNotZero) {
  for (const Layout& layout : FixedLayouts()) {
    std::vector<std::byte> again(layout.bytes.size());
    for (const auto& [begin, end] : layout.reserved) {
      for (size_t at = begin; at < end; ++at) {
        std::vector<std::byte> bytes = layout.bytes;
        bytes[at] = std::byte{1};
        EXPECT_EQ(layout.decode_and_encode(bytes, &again), Code::kBadFrame)
            << layout.name << " " << at;
      }
    }
  }
}

TEST(Codec, RefusesTextThatGoesOnAfterItsEnd) {
  std::vector<std::byte> bytes(kHelloBytes);
  EncodeHelloRequest(FilledHello(), bytes);
  bytes[191] = std::byte{'x'};
  HelloRequest hello;
  EXPECT_EQ(DecodeHelloRequest(bytes, &hello), Code::kBadFrame);
}

TEST(Codec, TakesAClientNameThatFillsItsField) {
  HelloRequest hello = FilledHello();
  hello.client_name = std::string(40, 'n');
  std::vector<std::byte> bytes(kHelloBytes);
  EncodeHelloRequest(hello, bytes);
  ASSERT_EQ(DecodeHelloRequest(bytes, &hello), Code::kOk);
  EXPECT_EQ(hello.client_name, std::string(32, 'n'));
}

TEST(CodecInsert, ReadsWhatWasWrittenAndChecksLengthAndReserve) {
  const auto rows = testing::Rows(2, 2);
  std::vector<std::byte> bytes = InsertBytes(rows);
  InsertMessage insert;
  ASSERT_EQ(DecodeInsert(bytes, &insert), Code::kOk);
  EXPECT_EQ(insert.slot, 3);
  EXPECT_EQ(insert.expected_length, 102u);
  EXPECT_EQ(HexOf(insert.row_area), HexOf(rows));
  for (size_t count = 0; count < bytes.size(); ++count) {
    EXPECT_EQ(DecodeInsert(ByteView(bytes).first(count), &insert), Code::kBadFrame) << count;
  }
  for (const size_t at : {6, 7, 36, 63}) {
    std::vector<std::byte> changed = bytes;
    changed[at] = std::byte{1};
    EXPECT_EQ(DecodeInsert(changed, &insert), Code::kBadFrame) << at;
  }
}

TEST(CodecStep, ReadsWhatWasWrittenAndChecksLengthAndReserve) {
  const auto rows = testing::Rows(2, 3);
  std::vector<std::byte> bytes = StepBytes(rows);
  StepMessage step;
  ASSERT_EQ(DecodeStep(bytes, &step), Code::kOk);
  EXPECT_EQ(step.entry_count, 2);
  EXPECT_EQ(step.entries[1].generation, 0x1112131415161718u);
  EXPECT_EQ(step.entries[1].first_row, 2u);
  EXPECT_EQ(HexOf(step.row_area), HexOf(rows));
  for (size_t count = 0; count < bytes.size(); ++count) {
    EXPECT_EQ(DecodeStep(ByteView(bytes).first(count), &step), Code::kBadFrame) << count;
  }
  for (const size_t at : {26, 27, 32, 63, 64 + 38, 64 + 39, 64 + 56, 64 + 63, 128 + 63}) {
    std::vector<std::byte> changed = bytes;
    changed[at] = std::byte{1};
    EXPECT_EQ(DecodeStep(changed, &step), Code::kBadFrame) << at;
  }
}

TEST(CodecStep, RefusesUndefinedFlagsAsReservedBits) {
  std::vector<std::byte> bytes = StepBytes(testing::Rows(2, 3));
  bytes[4] = std::byte{8};
  StepMessage step;
  EXPECT_EQ(DecodeStep(bytes, &step), Code::kBadFrame);
}

TEST(CodecStep, RefusesEntryCountsOutsideOneToFour) {
  std::vector<std::byte> bytes = StepBytes(testing::Rows(2, 3));
  StepMessage step;
  for (const uint8_t count : {0, 5, 255}) {
    bytes[0] = static_cast<std::byte>(count);
    EXPECT_EQ(DecodeStep(bytes, &step), Code::kBadRequest) << int{count};
  }
}

TEST(CodecStep, RefusesRowCountsThatOverflowTheLength) {
  std::vector<std::byte> bytes = StepBytes(testing::Rows(2, 3));
  StepMessage step;
  // 0x80000000 rows of 0x80000000 bytes: zero in 32 bits, and no body has that many.
  for (const size_t at : {19, 23}) bytes[at] = std::byte{0x80};
  EXPECT_EQ(DecodeStep(bytes, &step), Code::kBadFrame);
}

TEST(Codec, TakesPingsUpToTheLimit) {
  const std::vector<std::byte> payload(kMaxPingBytes + 1);
  EXPECT_EQ(CheckPingBody(ByteView(payload).first(kMaxPingBytes)), Code::kOk);
  EXPECT_EQ(CheckPingBody(payload), Code::kBadFrame);
  EXPECT_EQ(CheckEmptyBody({}), Code::kOk);
  EXPECT_EQ(CheckEmptyBody(ByteView(payload).first(1)), Code::kBadFrame);
}

}  // namespace
}  // namespace tp2::contract
