#include "libcore/telemetry/helper_process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/support/fake_library.h"

namespace tp2::telemetry {
namespace {

using testing::FakeLibrary;

constexpr int kWaitMs = 5000;

constexpr char kOneCard[] =
    "cards = 1\ncard0.uuid = GPU-c4e7a371-1111-2222-3333-444455556666\n"
    "card0.power_mw = 1000,2000\ncard0.links = 1\ncard0.link0.replay = 7\n";

TEST(HelperProcess, GivesCardsThenSamplesAtOnceAndOnRequest) {
  const FakeLibrary library(kOneCard);
  absl::StatusOr<HelperProcess> helper = HelperProcess::Start(library.path());
  ASSERT_TRUE(helper.ok()) << helper.status();
  const auto cards = helper->ReadCards(kWaitMs);
  ASSERT_TRUE(cards.ok()) << cards.status();
  ASSERT_EQ(cards->size(), 1u);
  EXPECT_EQ(helper->driver_version(), "580.0-fake");
  ASSERT_TRUE(helper->Begin(*cards, 60'000).ok());
  const auto first = helper->WaitSample(kWaitMs);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->cards[0].power_mw, 1000u);
  EXPECT_EQ(first->cards[0].links[0].replay, 7u);
  EXPECT_EQ(first->cards[0].links[0].recovery, std::nullopt);
  ASSERT_TRUE(helper->RequestSample().ok());
  const auto second = helper->WaitSample(kWaitMs);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->cards[0].power_mw, 2000u);
}

TEST(HelperProcess, ReportsAMissingLibraryInWords) {
  absl::StatusOr<HelperProcess> helper = HelperProcess::Start("/none/libnvidia-ml.so.1");
  ASSERT_TRUE(helper.ok());
  const auto cards = helper->ReadCards(kWaitMs);
  EXPECT_EQ(cards.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(cards.status().message().find("/none/libnvidia-ml.so.1"), std::string::npos);
}

TEST(HelperProcess, AHangEndsAtTheDeadlineAndTheHelperIsGoneAfterwards) {
  const FakeLibrary library("init.hang_ms = 60000\n");
  pid_t pid = 0;
  {
    absl::StatusOr<HelperProcess> helper = HelperProcess::Start(library.path());
    ASSERT_TRUE(helper.ok());
    pid = helper->pid();
    EXPECT_EQ(helper->ReadCards(50).status().code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(HelperProcess, ADeadHelperIsAnErrorNotAWait) {
  const FakeLibrary library(kOneCard);
  absl::StatusOr<HelperProcess> helper = HelperProcess::Start(library.path());
  ASSERT_TRUE(helper.ok());
  const auto cards = helper->ReadCards(kWaitMs);
  ASSERT_TRUE(cards.ok());
  ASSERT_TRUE(helper->Begin(*cards, 60'000).ok());
  ASSERT_TRUE(helper->WaitSample(kWaitMs).ok());
  ::kill(helper->pid(), SIGKILL);
  EXPECT_EQ(helper->WaitSample(kWaitMs).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(helper->fd(), -1);
}

}  // namespace
}  // namespace tp2::telemetry
