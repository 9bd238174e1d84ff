// libcore/device on a card: events, red zones, what a graph capture accepts and refuses.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <iostream>

#include "libcore/device/buffer.h"
#include "libcore/device/event.h"
#include "libcore/device/graph.h"
#include "libcore/device/red_zones.h"
#include "libcore/device/stream.h"
#include "tests/gpu/op_pair.h"

namespace tp2::device {
namespace {

using ::testing::HasSubstr;

class DeviceGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    TP2_NEEDS_GPU();
    ordinal_ = SelectDevice("")->ordinal;
    ASSERT_EQ(cudaSetDevice(ordinal_), cudaSuccess);
    work_ = *Stream::Create();
    capture_ = *Stream::Create(Stream::Kind::kCapture);
    memory_ = *Buffer<int>::Create(1 << 20);
  }
  void Fill(const Stream& stream, int value) {
    EXPECT_EQ(cudaMemsetAsync(memory_.data(), value, memory_.size() * sizeof(int), stream.get()),
              cudaSuccess);
  }
  int FirstWord() {
    int word = 0;
    EXPECT_EQ(cudaMemcpy(&word, memory_.data(), sizeof(word), cudaMemcpyDeviceToHost), cudaSuccess);
    return word;
  }
  absl::Status Refusal(const Stream& stream, absl::FunctionRef<void()> body) {
    return Graph::Capture(stream, ordinal_, body).status();
  }

  int ordinal_ = 0;
  Stream work_, capture_;
  Buffer<int> memory_;
};

TEST_F(DeviceGpuTest, EventsTimeWhatLiesBetween) {
  const Event before = *Event::Create(), after = *Event::Create();
  ASSERT_TRUE(before.Record(work_.get()).ok());
  Fill(work_, 1);
  ASSERT_TRUE(after.Record(work_.get()).ok());
  ASSERT_TRUE(work_.Synchronize().ok());
  const auto ns = NsBetween(before, after);
  ASSERT_TRUE(ns.ok()) << ns.status();
  EXPECT_GT(*ns, 0);
}

TEST_F(DeviceGpuTest, AGraphRunsNothingWhenCapturedAndAllOfItAtEveryReplay) {
  const auto graph = Graph::Capture(capture_, ordinal_, [&] { Fill(capture_, 1); });
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->nodes().fills, 1);
  EXPECT_EQ(graph->nodes().total(), 1);
  EXPECT_EQ(FirstWord(), 0);
  ASSERT_TRUE(graph->Upload(work_).ok());
  for (int replay = 0; replay < 2; ++replay) {
    Fill(work_, 2);
    ASSERT_TRUE(graph->Launch(work_).ok());
    ASSERT_TRUE(work_.Synchronize().ok());
    EXPECT_EQ(FirstWord(), 0x01010101);
  }
}

TEST_F(DeviceGpuTest, ACaptureRefusesWhatReplaysWouldNotRepeat) {
  EXPECT_THAT(std::string(Refusal(capture_, [] {}).message()), HasSubstr("at least one node"));
  EXPECT_THAT(std::string(Refusal(work_, [] {}).message()), HasSubstr("blocking stream"));
  EXPECT_THAT(std::string(Graph::Capture(capture_, ordinal_ + 1, [] {}).status().message()),
              HasSubstr("device"));
  absl::Status allocation, wait;
  EXPECT_TRUE(Refusal(capture_, [&] {
                Fill(capture_, 1);
                allocation = Buffer<int>::Create(5).status();
                wait = work_.Synchronize();
              }).ok());
  EXPECT_THAT(std::string(allocation.message()), HasSubstr("an allocation of 20 bytes"));
  EXPECT_THAT(std::string(wait.message()), HasSubstr("a wait for a stream"));
}

// The launch that would run once, now, and be missing from every replay. In a process of its own,
// because the refused call's error stays with the thread.
TEST_F(DeviceGpuTest, ALegacyStreamLaunchBreaksTheCapture) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto capture = [&] {
    const absl::Status status = Refusal(capture_, [&] {
      Fill(capture_, 1);
      cudaMemsetAsync(memory_.data(), 3, sizeof(int), cudaStreamLegacy);
    });
    std::cerr << status << "\n";
    ::_exit(status.code() == absl::StatusCode::kInternal && FirstWord() == 0 ? 0 : 1);
  };
  EXPECT_EXIT(capture(), testing::ExitedWithCode(0), "cudaStreamEndCapture");
}

TEST_F(DeviceGpuTest, RedZonesSeeAWriteBehindABuffer) {
  if (RedZones::BytesPerSide() == 0) return;  // off under a memory checker
  Buffer<char> buffer = *Buffer<char>::Create(100);
  ASSERT_TRUE(RedZones::Check().ok());
  ASSERT_EQ(cudaMemset(buffer.data() + 100, 0, 1), cudaSuccess);
  EXPECT_THAT(std::string(RedZones::Check().message()), HasSubstr("behind device memory of 100"));
  ASSERT_EQ(cudaMemset(buffer.data() + 100, 0xA5, 1), cudaSuccess);
  EXPECT_TRUE(RedZones::Check().ok());
}

}  // namespace
}  // namespace tp2::device
