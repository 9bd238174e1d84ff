// Slot ownership, generations and sequence rules.
#include "libcore/contract/session.h"

#include <gtest/gtest.h>

namespace tp2::contract {
namespace {

constexpr uint64_t kAlice = 11;
constexpr uint64_t kBob = 22;

TEST(SeqGate, StartsAtOneAndCountsUp) {
  SeqGate gate;
  EXPECT_EQ(gate.Check(0, 2, 7), Code::kSeqOld);
  EXPECT_EQ(gate.Check(2, 2, 7), Code::kSeqGap);
  EXPECT_EQ(gate.Check(1, 2, 7), Code::kOk);
}

TEST(SeqGate, ReplaysTheLastRequestOnlyWhenItsBytesAreTheSame) {
  SeqGate gate;
  const std::vector<std::byte> reply(3, std::byte{9});
  gate.Remember(1, 2, 7, reply);
  gate.Remember(2, 5, 8, reply);
  EXPECT_EQ(gate.Check(2, 5, 8), Code::kNotRun);
  EXPECT_EQ(gate.cached_reply().size(), 3u);
  EXPECT_EQ(gate.Check(2, 5, 9), Code::kSeqConflict);
  EXPECT_EQ(gate.Check(2, 4, 8), Code::kSeqConflict);
  EXPECT_EQ(gate.Check(1, 2, 7), Code::kSeqOld);
  EXPECT_EQ(gate.Check(3, 5, 8), Code::kOk);
  EXPECT_EQ(gate.Check(4, 5, 8), Code::kSeqGap);
}

TEST(SlotTable, GivesEverySlotOnceThenIsFull) {
  SlotTable slots(3, 0xABCD);
  int slot = -1;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(slots.PickForOpen(kAlice, kAnySlot, 8, &slot), Code::kOk);
    EXPECT_EQ(slot, i);
    slots.Open(slot, kAlice, 0, 0);
  }
  EXPECT_EQ(slots.PickForOpen(kAlice, kAnySlot, 8, &slot), Code::kSlotsFull);
  slots.Close(1);
  EXPECT_EQ(slots.PickForOpen(kBob, kAnySlot, 8, &slot), Code::kOk);
  EXPECT_EQ(slot, 1);
}

TEST(SlotTable, HonoursAWishAndTheSessionsLimit) {
  SlotTable slots(3, 0);
  int slot = -1;
  EXPECT_EQ(slots.PickForOpen(kAlice, 3, 8, &slot), Code::kNoSuchSlot);
  ASSERT_EQ(slots.PickForOpen(kAlice, 2, 8, &slot), Code::kOk);
  EXPECT_EQ(slot, 2);
  slots.Open(slot, kAlice, 0, 0);
  EXPECT_EQ(slots.PickForOpen(kBob, 2, 8, &slot), Code::kSlotsFull);
  EXPECT_EQ(slots.PickForOpen(kAlice, kAnySlot, 1, &slot), Code::kSlotsFull);
}

TEST(SlotTable, GenerationCarriesTheBootBitsAndNeverRepeats) {
  SlotTable slots(2, 0xABCD1234);
  const uint64_t first = slots.Open(0, kAlice, 0, 0);
  EXPECT_EQ(first >> 32, 0xABCD1234u);
  slots.Close(0);
  const uint64_t second = slots.Open(0, kAlice, 0, 0);
  EXPECT_GT(second, first + 1);  // OPEN and CLOSE both count
  EXPECT_NE(slots.Open(1, kAlice, 0, 0), second);
}

TEST(SlotTable, ChecksOwnerThenResyncThenGeneration) {
  SlotTable slots(2, 1);
  const uint64_t generation = slots.Open(0, kAlice, 0, 0);
  EXPECT_EQ(slots.CheckOwner(kAlice, 0, generation), Code::kOk);
  EXPECT_EQ(slots.CheckOwner(kAlice, 0, generation + 1), Code::kStaleGeneration);
  EXPECT_EQ(slots.CheckOwner(kBob, 0, generation), Code::kNoSuchSlot);
  EXPECT_EQ(slots.CheckOwner(kAlice, 1, generation), Code::kNoSuchSlot);
  EXPECT_EQ(slots.CheckOwner(kAlice, 2, generation), Code::kNoSuchSlot);
  EXPECT_EQ(slots.CheckOwner(0, 1, 0), Code::kNoSuchSlot);
  slots.MarkNeedsResync(0);
  EXPECT_EQ(slots.CheckOwner(kAlice, 0, generation), Code::kNeedsResync);
  EXPECT_NE(slots.at(0).generation, generation);
}

TEST(SlotTable, ClosingTwiceIsAllowedAndClosingAnothersIsNot) {
  SlotTable slots(2, 1);
  const uint64_t generation = slots.Open(0, kAlice, 0, 0);
  bool before = true;
  EXPECT_EQ(slots.CheckClose(kBob, {.slot = 0, .generation = generation}, &before),
            Code::kNoSuchSlot);
  EXPECT_EQ(slots.CheckClose(kAlice, {.slot = 0, .generation = 1}, &before),
            Code::kStaleGeneration);
  EXPECT_EQ(slots.CheckClose(kAlice, {.slot = 9, .generation = 1}, &before), Code::kNoSuchSlot);
  ASSERT_EQ(slots.CheckClose(kAlice, {.slot = 0, .generation = generation}, &before), Code::kOk);
  EXPECT_FALSE(before);
  slots.Close(0);
  EXPECT_EQ(slots.CheckClose(kAlice, {.slot = 0, .generation = generation}, &before), Code::kOk);
  EXPECT_TRUE(before);
  slots.Open(0, kBob, 0, 0);
  EXPECT_EQ(slots.CheckClose(kAlice, {.slot = 0, .generation = generation}, &before), Code::kOk);
  EXPECT_TRUE(before);
  EXPECT_EQ(slots.CheckClose(kAlice, {.slot = 0, .generation = 0}, &before), Code::kNoSuchSlot);
}

TEST(SlotTable, ASlotThatNeedsResyncCanBeClosed) {
  SlotTable slots(1, 1);
  const uint64_t generation = slots.Open(0, kAlice, 0, 0);
  slots.MarkNeedsResync(0);
  bool before = true;
  EXPECT_EQ(slots.CheckClose(kAlice, {.slot = 0, .generation = generation}, &before), Code::kOk);
  EXPECT_FALSE(before);
}

TEST(SlotTable, StatesFollowOwnershipAndRows) {
  SlotTable slots(1, 1);
  EXPECT_EQ(slots.at(0).state(), SlotState::kFree);
  slots.Open(0, kAlice, 5, 100);
  EXPECT_EQ(slots.at(0).state(), SlotState::kOpen);
  SlotWindow window(100);
  window.Insert(100, 3, 24);
  slots.SetWindow(0, window);
  EXPECT_EQ(slots.at(0).state(), SlotState::kLive);
  slots.MarkNeedsResync(0);
  EXPECT_EQ(slots.at(0).state(), SlotState::kNeedsResync);
}

TEST(SlotTable, ClosingASessionLeavesOthersAlone) {
  SlotTable slots(3, 1);
  slots.Open(0, kAlice, 0, 0);
  const uint64_t generation = slots.Open(1, kBob, 0, 0);
  slots.Open(2, kAlice, 0, 0);
  EXPECT_EQ(slots.CloseAll(kAlice), 2);
  EXPECT_EQ(slots.CloseAll(0), 0);
  EXPECT_EQ(slots.CountOpen(), 1);
  EXPECT_EQ(slots.CheckOwner(kBob, 1, generation), Code::kOk);
}

}  // namespace
}  // namespace tp2::contract
