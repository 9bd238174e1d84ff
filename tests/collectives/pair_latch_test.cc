// The host latch against a device that fails on command.
#include "libcore/collectives/pair_latch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tp2::coll {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two ranks that do what the test says, and a record of what was asked of them.
struct FakeDevice {
  absl::Status idle = absl::OkStatus();
  absl::Status read = absl::OkStatus();
  absl::Status clear = absl::OkStatus();
  std::vector<uint32_t> errors = {0, 0};
  std::vector<std::string> calls;

  LatchHooks Hooks() {
    return {.wait_idle =
                [this](int64_t timeout_ms) {
                  calls.push_back("idle");
                  return idle;
                },
            .read_errors =
                [this](std::vector<uint32_t>& out) {
                  calls.push_back("read");
                  out = errors;
                  return read;
                },
            .clear_states =
                [this] {
                  calls.push_back("clear");
                  return clear;
                }};
  }
};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

void ExpectRefusesEverything(PairLatch& latch, FakeDevice& device) {
  device.idle = device.read = device.clear = absl::OkStatus();
  device.calls.clear();
  for (const absl::Status& status : {latch.BeforeLaunch(1), latch.CheckStep(), latch.Reset()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status), HasSubstr("restart the process"));
  }
  EXPECT_TRUE(device.calls.empty()) << "a poisoned pair's device is left alone";
  EXPECT_TRUE(latch.is_poisoned());
}

TEST(PairLatch, AnIdleGapResetsOnceHalfOfTheOperationsAreUsed) {
  FakeDevice device;
  PairLatch latch({.max_epoch = 100, .reset_after = 40}, device.Hooks());
  EXPECT_TRUE(latch.BeforeLaunch(20).ok());
  EXPECT_TRUE(latch.MaintainWhileIdle().ok());
  EXPECT_TRUE(device.calls.empty()) << "nothing to do yet";
  EXPECT_TRUE(latch.BeforeLaunch(1).ok());
  EXPECT_TRUE(latch.MaintainWhileIdle().ok());
  EXPECT_THAT(device.calls, ElementsAre("idle", "read", "idle", "clear"));
  EXPECT_TRUE(latch.BeforeLaunch(40).ok()) << "all of them are there again";
  EXPECT_EQ(device.calls.size(), 4u) << "and no launch reset for them";
}

TEST(PairLatch, AnIdleGapDoesNotClearAnErrorThatNobodyHasSeen) {
  FakeDevice device;
  PairLatch latch({.max_epoch = 100, .reset_after = 40}, device.Hooks());
  EXPECT_TRUE(latch.BeforeLaunch(30).ok());
  device.errors = {0, kPeerTimeout};
  EXPECT_EQ(latch.MaintainWhileIdle().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(device.calls, ElementsAre("idle", "read"));
  EXPECT_TRUE(latch.needs_reset());
  EXPECT_TRUE(latch.MaintainWhileIdle().ok()) << "the failure is known: whoever saw it resets";
}

TEST(PairLatch, HealthyStepsTouchNothingButIdleAndErrorWords) {
  FakeDevice device;
  PairLatch latch({}, device.Hooks());
  EXPECT_TRUE(latch.BeforeLaunch(12).ok());
  EXPECT_TRUE(latch.CheckStep().ok());
  EXPECT_THAT(device.calls, ElementsAre("idle", "read"));
}

TEST(PairLatch, TimedOutIdleWaitPoisonsBeforeAnythingIsReadOrCleared) {
  for (const bool by_reset : {false, true}) {
    FakeDevice device;
    PairLatch latch({}, device.Hooks());
    device.idle = absl::DeadlineExceededError("rank 1 did not become idle");
    EXPECT_EQ((by_reset ? latch.Reset() : latch.CheckStep()).code(),
              absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(device.calls, ElementsAre("idle"));
    EXPECT_THAT(latch.poison_reason(), HasSubstr("rank 1"));
    ExpectRefusesEverything(latch, device);
  }
}

TEST(PairLatch, EveryDeviceErrorPoisons) {
  for (const char* where : {"idle", "read", "clear", "launch"}) {
    FakeDevice device;
    PairLatch latch({}, device.Hooks());
    const absl::Status lost = absl::InternalError("illegal address");
    if (std::string(where) == "idle") device.idle = lost;
    if (std::string(where) == "read") device.read = lost;
    if (std::string(where) == "clear") device.clear = lost;
    if (std::string(where) == "launch") {
      EXPECT_EQ(latch.NoteDeviceError(lost), lost);
    } else {
      EXPECT_EQ(std::string(where) == "clear" ? latch.Reset() : latch.CheckStep(), lost);
    }
    ExpectRefusesEverything(latch, device);
    EXPECT_EQ(latch.poison_reason(), "illegal address");
    EXPECT_FALSE(latch.NoteDeviceError(absl::InternalError("later")).ok());
    EXPECT_EQ(latch.poison_reason(), "illegal address");
  }
}

TEST(PairLatch, ProtocolErrorAsksForAResetAndDoesNotPoison) {
  FakeDevice device;
  PairLatch latch({}, device.Hooks());
  device.errors = {kPeerTimeout, kLocalTimeout};
  const absl::Status status = latch.CheckStep();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(status), HasSubstr("rank 0: peer timeout; rank 1: local timeout"));
  EXPECT_EQ(latch.BeforeLaunch(1).code(), absl::StatusCode::kFailedPrecondition);
  device.calls.clear();
  EXPECT_TRUE(latch.Reset().ok());
  EXPECT_THAT(device.calls, ElementsAre("idle", "clear"));
  EXPECT_TRUE(latch.BeforeLaunch(1).ok());
  EXPECT_FALSE(latch.is_poisoned());
}

TEST(PairLatch, ErrorOfEitherRankFailsTheStepWithTheCodeOfItsBits) {
  const std::pair<uint32_t, absl::StatusCode> cases[] = {
      {kLocalTimeout, absl::StatusCode::kDeadlineExceeded},
      {kPeerTimeout, absl::StatusCode::kDeadlineExceeded},
      {kInvalidId, absl::StatusCode::kInternal},
      {kCancelled, absl::StatusCode::kCancelled},
      {kEpochExhausted, absl::StatusCode::kInternal}};
  for (const auto& [bit, code] : cases) {
    for (const int rank : {0, 1}) {
      FakeDevice device;
      PairLatch latch({}, device.Hooks());
      device.errors[rank] = bit;
      EXPECT_EQ(latch.CheckStep().code(), code);
      EXPECT_TRUE(latch.needs_reset());
    }
  }
}

TEST(PairLatch, ResetsByItselfBeforeEpochsRunOut) {
  FakeDevice device;
  PairLatch latch({.max_epoch = 100, .reset_after = 50}, device.Hooks());
  int64_t epoch = 0;  // of a rank: operations since the latest clear
  int resets = 0;
  for (int step = 0; step < 200; ++step) {
    device.calls.clear();
    ASSERT_TRUE(latch.BeforeLaunch(12).ok());
    if (!device.calls.empty()) {
      EXPECT_THAT(device.calls, ElementsAre("idle", "read", "idle", "clear"));
      EXPECT_GT(epoch + 12, 50);  // not earlier than it must
      epoch = 0;
      ++resets;
    }
    epoch += 12;
    ASSERT_LE(epoch, 50);
  }
  EXPECT_EQ(resets, 49);  // four launches of 12 fit into 50
}

TEST(PairLatch, ProactiveResetDoesNotClearAnErrorThatNobodyHasSeen) {
  FakeDevice device;
  PairLatch latch({.max_epoch = 100, .reset_after = 50}, device.Hooks());
  ASSERT_TRUE(latch.BeforeLaunch(50).ok());
  device.errors = {0, kInvalidId};
  EXPECT_EQ(latch.BeforeLaunch(1).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(device.calls, ElementsAre("idle", "read"));
  EXPECT_TRUE(latch.needs_reset());
}

TEST(PairLatch, LateRankAtAProactiveResetPoisonsInsteadOfLaunching) {
  FakeDevice device;
  PairLatch latch({.max_epoch = 100, .reset_after = 50}, device.Hooks());
  ASSERT_TRUE(latch.BeforeLaunch(50).ok());
  device.idle = absl::DeadlineExceededError("late");
  EXPECT_EQ(latch.BeforeLaunch(1).code(), absl::StatusCode::kDeadlineExceeded);
  ExpectRefusesEverything(latch, device);
}

TEST(PairLatch, RefusesALaunchThatNoGenerationCouldHold) {
  FakeDevice device;
  PairLatch latch({.max_epoch = 100, .reset_after = 50}, device.Hooks());
  EXPECT_EQ(latch.BeforeLaunch(51).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(latch.BeforeLaunch(-1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(device.calls.empty());
}

}  // namespace
}  // namespace tp2::coll
