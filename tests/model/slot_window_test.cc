#include "libcore/model/slot_window.h"

#include <gtest/gtest.h>

namespace tp2 {
namespace {

constexpr int kWindow = 8;
constexpr int kRing = 24;

TEST(SlotWindow, StartsEmptyAtItsBase) {
  const SlotWindow window(327600);
  EXPECT_TRUE(window.is_empty());
  EXPECT_EQ(window.length(), 327600);
  EXPECT_EQ(window.WindowRows(kWindow), 0);
  EXPECT_EQ(window.WindowBegin(kWindow), 327600);
}

TEST(SlotWindow, IsPartialUntilTheWindowIsFull) {
  SlotWindow window;
  window.Insert(0, 3, kRing);
  EXPECT_EQ(window.WindowRows(kWindow), 3);
  EXPECT_EQ(window.WindowBegin(kWindow), 0);
  window.Insert(3, 5, kRing);
  EXPECT_EQ(window.WindowRows(kWindow), 8);
  window.Insert(8, 1, kRing);
  EXPECT_EQ(window.WindowRows(kWindow), 8);
  EXPECT_EQ(window.WindowBegin(kWindow), 1);
}

TEST(SlotWindow, RefusesGapsAndRollbacksBeyondWhatItHolds) {
  SlotWindow window(100);
  window.Insert(100, 30, kRing);
  EXPECT_EQ(window.oldest(), 106);
  EXPECT_EQ(window.Check(130), InsertVerdict::kOk);
  EXPECT_EQ(window.Check(131), InsertVerdict::kPositionGap);
  EXPECT_EQ(window.Check(106), InsertVerdict::kOk);
  EXPECT_EQ(window.Check(105), InsertVerdict::kRollbackTooFar);
}

TEST(SlotWindow, ARollbackOfTheSlackKeepsAFullWindow) {
  SlotWindow window;
  window.Insert(0, 100, kRing);
  window.Insert(100 - (kRing - kWindow), 0, kRing);
  EXPECT_EQ(window.length(), 84);
  EXPECT_EQ(window.WindowRows(kWindow), kWindow);
  // One row more and the window is short by one.
  window.Insert(83, 0, kRing);
  EXPECT_EQ(window.WindowRows(kWindow), kWindow - 1);
}

TEST(SlotWindow, RowsDroppedByARollbackAreNotHeldAgainAfterIt) {
  SlotWindow window;
  window.Insert(0, 100, kRing);  // holds 76 .. 99
  window.Insert(90, 2, kRing);   // drops 90 .. 99, holds 76 .. 91
  EXPECT_EQ(window.length(), 92);
  EXPECT_EQ(window.oldest(), 76);
}

TEST(SlotWindow, AnInsertLongerThanTheRingKeepsItsLastRows) {
  SlotWindow window;
  window.Insert(0, 128, kRing);
  EXPECT_EQ(window.oldest(), 128 - kRing);
}

}  // namespace
}  // namespace tp2
