// Requests against limits: one case per refusal and one at each limit, and the order of checks.
#include "libcore/contract/validate.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "libcore/contract/all_finite.h"
#include "libcore/contract/codec.h"
#include "tests/support/contract_bytes.h"

namespace tp2::contract {
namespace {

constexpr uint64_t kSession = 5;
constexpr int kWindow = 8;
constexpr int kRing = 24;
constexpr int64_t kMaxPositions = 1000;

WorkerLimits Worker() {
  WorkerLimits worker;
  worker.vocab = 100;
  worker.hidden = 4;
  worker.taps = 3;
  worker.window_rows = kWindow;
  worker.ring_rows = kRing;
  worker.max_positions = kMaxPositions;
  worker.features = kFeatureMargin | kFeatureMainX | kFeatureBodyHash;
  worker.identity = testing::Counting<32>(1);
  worker.config = testing::Counting<32>(2);
  worker.numerics = testing::Counting<32>(3);
  return worker;
}

HelloRequest MatchingHello() {
  HelloRequest hello;
  hello.identity = Worker().identity;
  hello.config = Worker().config;
  hello.numerics = Worker().numerics;
  hello.vocab = 100;
  hello.hidden = 4;
  hello.taps = 3;
  hello.row_bytes = 24;
  hello.window_rows = kWindow;
  hello.max_model_length = kMaxPositions;
  hello.features = kFeatureMargin | kFeatureDebug;
  return hello;
}

TEST(ValidateHello, AcceptsAMatchingClientAndGrantsWhatBothHave) {
  EXPECT_EQ(ValidateHello(MatchingHello(), Worker()).code, Code::kOk);
  const SessionGrant grant = GrantOf(MatchingHello(), Worker(), kSession);
  EXPECT_EQ(grant.features, kFeatureMargin);
  EXPECT_EQ(grant.session, kSession);
}

TEST(ValidateHello, NamesTheFirstFieldThatDiffers) {
  const auto field_after = [](auto change) {
    HelloRequest hello = MatchingHello();
    change(hello);
    return ValidateHello(hello, Worker()).mismatch_field;
  };
  EXPECT_EQ(field_after([](auto& h) { h.identity[31] ^= 1; }), kFieldIdentity);
  EXPECT_EQ(field_after([](auto& h) { h.vocab++; }), kFieldVocab);
  EXPECT_EQ(field_after([](auto& h) { h.hidden++; }), kFieldHidden);
  EXPECT_EQ(field_after([](auto& h) { h.taps++; }), kFieldTaps);
  EXPECT_EQ(field_after([](auto& h) { h.row_dtype = 2; }), kFieldRowDtype);
  EXPECT_EQ(field_after([](auto& h) { h.row_bytes++; }), kFieldRowBytes);
  EXPECT_EQ(field_after([](auto& h) { h.window_rows++; }), kFieldWindow);
  EXPECT_EQ(field_after([](auto& h) { h.max_model_length++; }), kFieldMaxModelLength);
  EXPECT_EQ(field_after([](auto& h) { h.config[0] ^= 1; }), kFieldConfig);
  EXPECT_EQ(field_after([](auto& h) { h.identity[0] ^= 1, h.vocab++; }), kFieldIdentity);
  EXPECT_EQ(field_after([](auto& h) { h.config[0] ^= 1, h.vocab++; }), kFieldVocab);
}

TEST(ValidateHello, SaysIdentityOrConfigByCode) {
  HelloRequest hello = MatchingHello();
  hello.config[0] ^= 1;
  EXPECT_EQ(ValidateHello(hello, Worker()).code, Code::kConfigMismatch);
  hello.identity[0] ^= 1;
  EXPECT_EQ(ValidateHello(hello, Worker()).code, Code::kIdentityMismatch);
}

TEST(ValidateHello, ComparesNumericsOnlyWhenAsked) {
  HelloRequest hello = MatchingHello();
  hello.numerics[0] ^= 1;
  EXPECT_EQ(ValidateHello(hello, Worker()).code, Code::kOk);
  hello.features |= kFeatureStrictNumerics;
  EXPECT_EQ(ValidateHello(hello, Worker()).mismatch_field, kFieldNumerics);
}

TEST(ValidateHello, RefusesVersionsThatDoNotIncludeOurs) {
  HelloRequest hello = MatchingHello();
  hello.lowest_version = kVersion + 1;
  hello.highest_version = kVersion + 2;
  EXPECT_EQ(ValidateHello(hello, Worker()).code, Code::kVersionUnsupported);
  hello.lowest_version = 0;
  hello.highest_version = kVersion - 1;
  EXPECT_EQ(ValidateHello(hello, Worker()).code, Code::kVersionUnsupported);
  hello.highest_version = kVersion + 1;
  EXPECT_EQ(ValidateHello(hello, Worker()).code, Code::kOk);
}

TEST(ValidateHello, RefusesWishesBeyondTheContract) {
  const auto code_after = [](auto change) {
    HelloRequest hello = MatchingHello();
    change(hello);
    return ValidateHello(hello, Worker()).code;
  };
  EXPECT_EQ(code_after([](auto& h) { h.n_out = 0; }), Code::kBadRequest);
  EXPECT_EQ(code_after([](auto& h) { h.n_out = 1; }), Code::kOk);
  EXPECT_EQ(code_after([](auto& h) { h.n_out = 6; }), Code::kBadRequest);
  EXPECT_EQ(code_after([](auto& h) { h.requests = 0; }), Code::kBadRequest);
  EXPECT_EQ(code_after([](auto& h) { h.requests = 1; }), Code::kOk);
  EXPECT_EQ(code_after([](auto& h) { h.requests = 5; }), Code::kBadRequest);
  EXPECT_EQ(code_after([](auto& h) { h.slots = 0; }), Code::kOk);
  EXPECT_EQ(code_after([](auto& h) { h.slots = 9; }), Code::kBadRequest);
  EXPECT_EQ(code_after([](auto& h) { h.largest_reply_bytes = kMaxReplyBytes - 1; }),
            Code::kBadRequest);
}

TEST(ValidateOpen, TakesTheLastPositionAsBaseAndNoneBeyond) {
  EXPECT_EQ(ValidateOpen({.base = kMaxPositions - 1}, Worker()), Code::kOk);
  EXPECT_EQ(ValidateOpen({.base = kMaxPositions}, Worker()), Code::kBadRequest);
  EXPECT_EQ(ValidateOpen({.base = ~uint64_t{0}}, Worker()), Code::kBadRequest);
}

// Slots 0 and 1 are the session's: 0 holds positions 100..109, 1 is open at 0. Slot 2 is another's.
class ValidateRowsTest : public ::testing::Test {
 protected:
  ValidateRowsTest() : slots_(8, 7), rows_(kMaxRowsPerMessage * 24) {
    generation_ = slots_.Open(0, kSession, 0, 100);
    empty_generation_ = slots_.Open(1, kSession, 0, 0);
    slots_.Open(2, kSession + 1, 0, 0);
    SlotWindow window(100);
    window.Insert(100, 10, kRing);
    slots_.SetWindow(0, window);
    grant_ = {.session = kSession,
              .features = kFeatureMargin | kFeatureMainX,
              .requests = kMaxRequests,
              .n_out = kBlockRows,
              .slots = 8};
    insert_ = {.slot = 0,
               .row_kind = 1,
               .rows = 2,
               .generation = generation_,
               .position = 110,
               .expected_length = 112,
               .row_bytes = 24,
               .row_area = std::span(rows_).first(48)};
    step_.entry_count = 1;
    step_.rows = 2;
    step_.row_bytes = 24;
    step_.rows_offset = StepHeadBytes(1);
    step_.row_area = insert_.row_area;
    step_.entries[0] = {.slot = 0,
                        .rows = 2,
                        .anchor = 99,
                        .generation = generation_,
                        .position = 110,
                        .anchor_position = 112,
                        .first_row = 0,
                        .expected_length = 112,
                        .tag = 0};
  }

  Code Insert() { return ValidateInsert(insert_, worker_, grant_, slots_, &after_); }
  StepVerdict Step() { return ValidateStep(step_, worker_, grant_, slots_); }
  // Entry 0 moved to `position` with no rows.
  void MoveWithoutRows(uint64_t position) {
    step_.rows = 0;
    step_.row_area = {};
    StepMessageEntry& entry = step_.entries[0];
    entry.rows = 0;
    entry.position = entry.anchor_position = entry.expected_length = position;
  }
  void AddSecondEntry() {
    step_.entry_count = 2;
    step_.rows_offset = StepHeadBytes(2);
    step_.rows = 3;
    step_.row_area = std::span(rows_).first(72);
    step_.entries[1] = {.slot = 1,
                        .rows = 1,
                        .anchor = 0,
                        .generation = empty_generation_,
                        .position = 0,
                        .anchor_position = 1,
                        .first_row = 2,
                        .expected_length = 1,
                        .tag = 0};
  }
  void ExpectEntry(int index, Code code) {
    const StepVerdict verdict = Step();
    EXPECT_EQ(CodeName(verdict.code), std::string("BAD_ENTRY"));
    EXPECT_EQ(verdict.bad_entry, index);
    EXPECT_EQ(CodeName(verdict.entry_code), std::string(CodeName(code)));
  }

  WorkerLimits worker_ = Worker();
  SlotTable slots_;
  SessionGrant grant_;
  std::vector<std::byte> rows_;
  uint64_t generation_ = 0;
  uint64_t empty_generation_ = 0;
  InsertMessage insert_;
  StepMessage step_;
  SlotWindow after_;
};

TEST_F(ValidateRowsTest, InsertAppendsAndRollsBack) {
  EXPECT_EQ(Insert(), Code::kOk);
  EXPECT_EQ(after_.length(), 112);
  insert_.position = 100;
  insert_.expected_length = 102;
  EXPECT_EQ(Insert(), Code::kOk);
  EXPECT_EQ(after_.length(), 102);
}

TEST_F(ValidateRowsTest, InsertRefusesGapsAndRollbacksTooFar) {
  insert_.position = 111;
  insert_.expected_length = 113;
  EXPECT_EQ(Insert(), Code::kPositionGap);
  insert_.position = 99;
  insert_.expected_length = 101;
  EXPECT_EQ(Insert(), Code::kRollbackTooFar);
}

TEST_F(ValidateRowsTest, InsertTakesOneToAHundredAndTwentyEightRows) {
  insert_.rows = 128;
  insert_.row_area = rows_;
  insert_.expected_length = 238;
  EXPECT_EQ(Insert(), Code::kOk);
  insert_.rows = 129;
  insert_.expected_length = 239;
  EXPECT_EQ(Insert(), Code::kBadRequest);
  insert_.rows = 0;
  insert_.expected_length = 110;
  EXPECT_EQ(Insert(), Code::kBadRequest);
}

TEST_F(ValidateRowsTest, InsertEndsAtTheModelLength) {
  SlotWindow window(997);
  window.Insert(997, 1, kRing);
  slots_.SetWindow(0, window);
  insert_.position = 998;
  insert_.expected_length = 1000;
  EXPECT_EQ(Insert(), Code::kOk);
  insert_.position = 999;
  insert_.expected_length = 1001;
  EXPECT_EQ(Insert(), Code::kBadRequest);
  insert_.position = ~uint64_t{0};
  insert_.expected_length = 1;
  EXPECT_EQ(Insert(), Code::kBadRequest);
}

TEST_F(ValidateRowsTest, InsertChecksKindSlotGenerationAndLength) {
  InsertMessage good = insert_;
  insert_.row_kind = 2;
  EXPECT_EQ(Insert(), Code::kBadRequest);  // main_x rows are 8 bytes, not 24
  grant_.features = 0;
  EXPECT_EQ(Insert(), Code::kUnsupported);
  insert_ = good;
  insert_.row_kind = 3;
  EXPECT_EQ(Insert(), Code::kBadRequest);
  insert_ = good;
  insert_.row_bytes = 23;
  EXPECT_EQ(Insert(), Code::kBadRequest);
  insert_ = good;
  insert_.slot = 2;
  EXPECT_EQ(Insert(), Code::kNoSuchSlot);
  insert_ = good;
  insert_.generation++;
  EXPECT_EQ(Insert(), Code::kStaleGeneration);
  insert_ = good;
  insert_.expected_length++;
  EXPECT_EQ(Insert(), Code::kBadRequest);
  insert_ = good;
  slots_.MarkNeedsResync(0);
  EXPECT_EQ(Insert(), Code::kNeedsResync);
}

TEST_F(ValidateRowsTest, InsertRefusesRowsThatAreNotFinite) {
  rows_[47] = std::byte{0x7F};
  rows_[46] = std::byte{0x7F};  // the largest finite bf16
  EXPECT_EQ(Insert(), Code::kOk);
  rows_[46] = std::byte{0x80};  // infinity
  EXPECT_EQ(Insert(), Code::kNonfiniteRows);
}

TEST_F(ValidateRowsTest, StepAcceptsAndReportsTheWindowAfter) {
  AddSecondEntry();
  const StepVerdict verdict = Step();
  ASSERT_EQ(verdict.code, Code::kOk);
  EXPECT_EQ(verdict.after[0].length(), 112);
  EXPECT_EQ(verdict.after[1].length(), 1);
}

TEST_F(ValidateRowsTest, StepChecksFeaturesBeforeFields) {
  grant_.features = 0;
  step_.n_out = 0;
  step_.flags = kStepWantMargin;
  EXPECT_EQ(Step().code, Code::kUnsupported);
  step_.flags = kStepDebug;
  EXPECT_EQ(Step().code, Code::kUnsupported);
  step_.flags = 0;
  step_.row_kind = 2;
  EXPECT_EQ(Step().code, Code::kUnsupported);
  step_.row_kind = 1;
  EXPECT_EQ(Step().code, Code::kBadRequest);
}

TEST_F(ValidateRowsTest, StepTakesNOutFromOneToTheGrant) {
  for (const uint16_t n_out : {1, 5}) {
    step_.n_out = n_out;
    EXPECT_EQ(Step().code, Code::kOk) << n_out;
  }
  step_.n_out = 0;
  EXPECT_EQ(Step().code, Code::kBadRequest);
  step_.n_out = 6;
  EXPECT_EQ(Step().code, Code::kBadRequest);
  grant_.n_out = 3;
  step_.n_out = 4;
  EXPECT_EQ(Step().code, Code::kBadRequest);
}

TEST_F(ValidateRowsTest, StepChecksItsOwnFields) {
  const StepMessage good = step_;
  step_.rows_offset++;
  EXPECT_EQ(Step().code, Code::kBadRequest);
  step_ = good;
  step_.row_bytes = 8;
  EXPECT_EQ(Step().code, Code::kBadRequest);
  step_ = good;
  step_.row_kind = 0;
  EXPECT_EQ(Step().code, Code::kBadRequest);
  step_ = good;
  step_.rows = 129;
  EXPECT_EQ(Step().code, Code::kBadRequest);
  step_ = good;
  grant_.requests = 1;
  AddSecondEntry();
  EXPECT_EQ(Step().code, Code::kBadRequest);
}

TEST_F(ValidateRowsTest, StepTakesAHundredAndTwentyEightRows) {
  step_.rows = 128;
  step_.row_area = rows_;
  step_.entries[0].rows = 128;
  step_.entries[0].anchor_position = step_.entries[0].expected_length = 238;
  EXPECT_EQ(Step().code, Code::kOk);
}

TEST_F(ValidateRowsTest, EntryChecksInOrder) {
  // Every fault at once; each is removed when it was named.
  StepMessageEntry& entry = step_.entries[0];
  rows_[47] = std::byte{0x7F};
  rows_[46] = std::byte{0x80};
  entry = {.slot = 2,
           .rows = 1,
           .anchor = 100,
           .generation = 1,
           .position = 111,
           .anchor_position = 0,
           .first_row = 1,
           .expected_length = 0,
           .tag = 0};
  ExpectEntry(0, Code::kNoSuchSlot);
  entry.slot = 0;
  ExpectEntry(0, Code::kStaleGeneration);
  entry.generation = generation_;
  ExpectEntry(0, Code::kBadRequest);  // rows
  entry.rows = 2;
  ExpectEntry(0, Code::kBadRequest);  // first row
  entry.first_row = 0;
  ExpectEntry(0, Code::kPositionGap);
  entry.position = 99;
  ExpectEntry(0, Code::kRollbackTooFar);
  entry.position = 110;
  ExpectEntry(0, Code::kBadRequest);  // anchor position
  entry.anchor_position = 112;
  ExpectEntry(0, Code::kBadRequest);  // anchor token
  entry.anchor = 99;
  ExpectEntry(0, Code::kBadRequest);  // expected length
  entry.expected_length = 112;
  ExpectEntry(0, Code::kNonfiniteRows);
  rows_[46] = std::byte{0};
  EXPECT_EQ(Step().code, Code::kOk);
}

TEST_F(ValidateRowsTest, StepRefusesASlotTwice) {
  AddSecondEntry();
  step_.entries[1].slot = 0;
  step_.entries[1].generation = generation_;
  ExpectEntry(1, Code::kBadRequest);
}

TEST_F(ValidateRowsTest, StepRefusesRowsThatDoNotAddUp) {
  AddSecondEntry();
  step_.entries[1].rows = 0;
  ExpectEntry(1, Code::kBadRequest);
  step_.entries[1].rows = 2;
  ExpectEntry(1, Code::kBadRequest);
  step_.entries[1].rows = 1;
  step_.entries[1].first_row = 1;
  ExpectEntry(1, Code::kBadRequest);
}

TEST_F(ValidateRowsTest, StepWithoutRowsRollsBackAndNeedsAWindow) {
  MoveWithoutRows(110);
  EXPECT_EQ(Step().code, Code::kOk);
  MoveWithoutRows(101);
  EXPECT_EQ(Step().code, Code::kOk);
  MoveWithoutRows(100);
  ExpectEntry(0, Code::kEmptyWindow);
}

TEST_F(ValidateRowsTest, StepKeepsRoomForTheBlock) {
  SlotWindow window(980);
  window.Insert(980, 16, kRing);
  slots_.SetWindow(0, window);
  MoveWithoutRows(995);
  EXPECT_EQ(Step().code, Code::kOk);
  MoveWithoutRows(996);
  ExpectEntry(0, Code::kBadRequest);
}

TEST_F(ValidateRowsTest, StepNamesASlotThatNeedsResync) {
  slots_.MarkNeedsResync(0);
  ExpectEntry(0, Code::kNeedsResync);
}

TEST(AllFinite, FindsInfinitiesAndNansAtEveryPlaceOfEveryLength) {
  constexpr uint16_t kLargest = 0x7F7F;
  for (const size_t count : {0u, 1u, 7u, 31u, 32u, 33u, 64u, 100u}) {
    std::vector<uint16_t> rows(count, kLargest);
    const auto bytes = [&rows] { return std::as_bytes(std::span(rows)); };
    EXPECT_TRUE(AllFinite(bytes())) << count;
    for (uint16_t& value : rows) {
      for (const uint16_t bad : {0x7F80, 0xFF80, 0x7F81, 0x7FC0, 0xFFFF}) {
        value = bad;
        EXPECT_FALSE(AllFinite(bytes())) << count << " " << bad;
      }
      value = 0xFF7F;
    }
    EXPECT_TRUE(AllFinite(bytes())) << count;
  }
}

TEST(AllFinite, KnowsEveryValue) {
  std::vector<uint16_t> rows(64);
  for (int value = 0; value <= 0xFFFF; ++value) {
    rows[37] = static_cast<uint16_t>(value);
    EXPECT_EQ(AllFinite(std::as_bytes(std::span(rows))), (value & 0x7F80) != 0x7F80) << value;
  }
}

}  // namespace
}  // namespace tp2::contract
