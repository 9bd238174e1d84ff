// The collectives on cards: every element of random mixed operations, the copy oracle, and every
// failure with its bits on both ranks. Built twice: both ranks on one card, and on two.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/collectives/cuda/captured.h"
#include "libcore/collectives/cuda/cuda_pair.h"
#include "libcore/collectives/cuda/data_check.h"
#include "libcore/collectives/cuda/harness.h"
#include "libcore/collectives/cuda/reference.h"
#include "libcore/collectives/cuda/soak.h"
#include "libcore/device/device_guard.h"
#include "libcore/device/peer.h"

namespace tp2::coll {
namespace {

constexpr int kCards = TP2_TEST_CARDS;
constexpr uint64_t kShortNs = 50'000'000;
constexpr int kSmallGrid = 16;  // several ranks on one card must be resident together

const std::vector<device::DeviceInfo>& Cards() {
  static const std::vector<device::DeviceInfo> cards = [] {
    absl::StatusOr<std::vector<device::DeviceInfo>> found = device::ListDevices();
    return found.ok() ? *found : std::vector<device::DeviceInfo>();
  }();
  return cards;
}

std::vector<TokenRange> Parts(int rank_count) {
  std::vector<TokenRange> parts;
  for (int rank = 0; rank < rank_count; ++rank) parts.push_back({rank * 1000, rank * 1000 + 1000});
  return parts;
}

std::unique_ptr<CudaPair> MakePair(ProtocolKind protocol, int rank_count = 2,
                                   uint64_t timeout_ns = 2'000'000'000,
                                   uint32_t max_epoch = kMaxEpoch) {
  CudaPairOptions options;
  for (int rank = 0; rank < rank_count; ++rank) options.cards.push_back(Cards()[rank % kCards]);
  options.protocol = protocol;
  options.tokens = Parts(rank_count);
  options.timeout_ns = timeout_ns;
  options.max_epoch = max_epoch;
  absl::StatusOr<std::unique_ptr<CudaPair>> pair = CudaPair::Create(options);
  TP2_CHECK(pair.ok());
  return *std::move(pair);
}

ScriptOp SumOf(int64_t count, int blocks = 4) {
  ScriptOp op;
  op.count = count;
  op.grid = {blocks, 256};
  return op;
}

ScriptOp MarginOf(int requests) {
  ScriptOp op;
  op.kind = OpKind::kBestTwo;
  op.count = requests;
  return op;
}

ScriptOp Close() {
  ScriptOp op;
  op.kind = OpKind::kClose;
  return op;
}

class PairGpuTest : public testing::TestWithParam<ProtocolKind> {
 protected:
  void SetUp() override {
    if (static_cast<int>(Cards().size()) < kCards) {
      GTEST_SKIP() << "needs " << kCards << " cards, found " << Cards().size();
    }
  }
  void ExpectExact(CudaPair& pair, const SoakOptions& options) {
    const absl::StatusOr<SoakResult> result = RunSoak(pair, options);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->error_bits, 0u);
    EXPECT_EQ(result->wrong, 0u);
    EXPECT_GE(result->collectives, options.collectives);
    EXPECT_EQ(result->closed_steps, result->steps);
    EXPECT_GT(result->steps, 0);
  }
  // Errors of both ranks after what was enqueued.
  std::array<uint32_t, 2> Errors(CudaPair& pair) {
    EXPECT_TRUE(pair.Drain().ok());
    std::array<uint32_t, 2> errors = {};
    for (int rank = 0; rank < 2; ++rank) {
      const absl::StatusOr<Status> status = pair.ReadStatus(rank);
      EXPECT_TRUE(status.ok()) << status.status();
      if (status.ok()) errors[rank] = status->error;
    }
    return errors;
  }
  // A reset makes the pair whole again.
  void ExpectRecovers(CudaPair& pair) {
    ASSERT_TRUE(pair.Recover().ok());
    SoakOptions options;
    options.collectives = 100;
    options.script.max_blocks = kSmallGrid;
    options.is_eager = true;
    ExpectExact(pair, options);
  }
};

TEST_P(PairGpuTest, MixedOperationsAreExactInGraphs) {
  const std::unique_ptr<CudaPair> pair = MakePair(GetParam());
  SoakOptions options;
  options.collectives = 5000;
  options.script_count = 8;
  options.script.max_blocks = kCards == 2 ? 128 : kSmallGrid;
  ExpectExact(*pair, options);
}

TEST_P(PairGpuTest, MixedOperationsAreExactEagerly) {
  const std::unique_ptr<CudaPair> pair = MakePair(GetParam());
  SoakOptions options;
  options.seed = 2;
  options.collectives = 1000;
  options.script.max_blocks = kSmallGrid;
  options.is_eager = true;
  ExpectExact(*pair, options);
}

TEST_P(PairGpuTest, ThreeAndFourRanksAreExact) {
  for (const int rank_count : {3, 4}) {
    const std::unique_ptr<CudaPair> pair = MakePair(GetParam(), rank_count);
    SoakOptions options;
    options.seed = static_cast<uint64_t>(rank_count);
    options.collectives = 1000;
    options.script.max_blocks = kSmallGrid;
    ExpectExact(*pair, options);
  }
}

#if TP2_TEST_CARDS == 1
TEST_P(PairGpuTest, BothRanksInOneCooperativeLaunchAreExact) {
  const std::unique_ptr<CudaPair> pair = MakePair(GetParam());
  SoakOptions options;
  options.collectives = 2000;
  options.is_fused = true;
  ExpectExact(*pair, options);
}
#endif

TEST_P(PairGpuTest, AgreesWithTheCopyOracleUnderDelayedStreams) {
  const std::unique_ptr<CudaPair> pair = MakePair(GetParam());
  constexpr int64_t kMaxCount = 102400;
  const std::array<int, 2> ordinals = {pair->card(0).ordinal, pair->card(1).ordinal};
  absl::StatusOr<ReferenceReduce> reference = ReferenceReduce::Create(ordinals, kMaxCount);
  ASSERT_TRUE(reference.ok()) << reference.status();
  device::Stream streams[2];
  device::Buffer<float> x[2], sums[2], expected[2];
  device::Buffer<Bf16> rounded[2], expected_rounded[2];
  device::Buffer<uint32_t> turns[2];
  for (int rank = 0; rank < 2; ++rank) {
    const device::DeviceGuard guard(ordinals[rank]);
    streams[rank] = *device::Stream::Create();
    x[rank] = *device::Buffer<float>::Create(kMaxCount);
    sums[rank] = *device::Buffer<float>::Create(kMaxCount);
    expected[rank] = *device::Buffer<float>::Create(kMaxCount);
    rounded[rank] = *device::Buffer<Bf16>::Create(kMaxCount);
    expected_rounded[rank] = *device::Buffer<Bf16>::Create(kMaxCount);
    turns[rank] = *device::Buffer<uint32_t>::Create(1);
  }
  int block_count = 1;
  for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4}, int64_t{511},
                              int64_t{25600}, int64_t{76801}, kMaxCount}) {
    for (const uint64_t delay_ns : {uint64_t{0}, uint64_t{10'000}, uint64_t{1'000'000}}) {
      const int late = static_cast<int>(count % 2);
      block_count = block_count % kSmallGrid + 1;
      cuda::ReduceArgs ours[2], theirs[2];
      for (int rank = 0; rank < 2; ++rank) {
        const device::DeviceGuard guard(ordinals[rank]);
        cuda::FillArgs fill;
        fill.seed = static_cast<uint64_t>(count) + delay_ns;
        fill.rank = rank;
        fill.turn = turns[rank].data();
        fill.values = x[rank].data();
        fill.count = count;
        if (rank == late) cuda::LaunchStall(delay_ns, streams[rank].get());
        cuda::LaunchFill(fill, streams[rank].get());
        ours[rank] = {x[rank].data(), count, sums[rank].data(), rounded[rank].data()};
        theirs[rank] = {x[rank].data(), count, expected[rank].data(),
                        expected_rounded[rank].data()};
      }
      for (int rank = 1; rank >= 0; --rank) {
        ASSERT_TRUE(
            pair->AllReduce(rank, ours[rank], {block_count, 128}, nullptr, streams[rank].get())
                .ok());
      }
      ASSERT_TRUE(reference->Enqueue(theirs, {streams[0].get(), streams[1].get()}).ok());
      ASSERT_EQ(Errors(*pair), (std::array<uint32_t, 2>{}));
      for (int rank = 0; rank < 2; ++rank) {
        ASSERT_TRUE(streams[rank].Synchronize().ok());
        std::vector<float> a(count), b(count);
        std::vector<Bf16> c(count), d(count);
        cudaMemcpy(a.data(), sums[rank].data(), count * sizeof(float), cudaMemcpyDefault);
        cudaMemcpy(b.data(), expected[rank].data(), count * sizeof(float), cudaMemcpyDefault);
        cudaMemcpy(c.data(), rounded[rank].data(), count * sizeof(Bf16), cudaMemcpyDefault);
        cudaMemcpy(d.data(), expected_rounded[rank].data(), count * sizeof(Bf16),
                   cudaMemcpyDefault);
        EXPECT_EQ(std::memcmp(a.data(), b.data(), count * sizeof(float)), 0) << count;
        EXPECT_EQ(std::memcmp(c.data(), d.data(), count * sizeof(Bf16)), 0) << count;
        EXPECT_NE(b[0], 0.0f);
      }
    }
  }
}

TEST_P(PairGpuTest, LostPartnerIsATimeoutOnBothRanks) {
  const std::unique_ptr<CudaPair> pair = MakePair(GetParam(), 2, kShortNs);
  Workload work = *Workload::Create(*pair, 1);
  const SteadyClock clock;
  const int64_t start_ns = clock.NowNs();
  ASSERT_TRUE(work.Enqueue(0, SumOf(1000)).ok());
  EXPECT_EQ(Errors(*pair), (std::array<uint32_t, 2>{kLocalTimeout, kPeerTimeout}));
  EXPECT_GE(clock.NowNs() - start_ns, static_cast<int64_t>(kShortNs));
  ExpectRecovers(*pair);
}

TEST_P(PairGpuTest, LostLineFailsTheStepOnBothRanks) {
  const std::unique_ptr<CudaPair> pair = MakePair(GetParam(), 2, kShortNs);
  Workload work = *Workload::Create(*pair, 1);
  cuda::Fault fault;
  fault.block = 1;
  fault.dropped_thread = 0;
  for (int rank = 1; rank >= 0; --rank) {
    ASSERT_TRUE(work.Enqueue(rank, SumOf(3000), rank == 1 ? &fault : nullptr).ok());
    ASSERT_TRUE(work.Enqueue(rank, Close()).ok());
  }
  // With acknowledgments both ranks wait, and whoever is late first tells the other.
  const std::array<uint32_t, 2> errors = Errors(*pair);
  EXPECT_NE(errors[0] & (kLocalTimeout | kPeerTimeout), 0u);
  EXPECT_NE(errors[1] & (kLocalTimeout | kPeerTimeout), 0u);
  EXPECT_EQ((errors[0] | errors[1]) & ~(kLocalTimeout | kPeerTimeout), 0u);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(*pair->ReadClosedSteps(rank), 0u);
  ExpectRecovers(*pair);
}

TEST_P(PairGpuTest, ForeignIdIsRefusedOnBothRanksInTheSameStep) {
  for (const int liar : {0, 1}) {
    const std::unique_ptr<CudaPair> pair = MakePair(GetParam());
    Workload work = *Workload::Create(*pair, 1);
    cuda::Fault fault;
    fault.has_foreign_id = true;
    for (int rank = 1; rank >= 0; --rank) {
      ASSERT_TRUE(work.Enqueue(rank, MarginOf(4), rank == liar ? &fault : nullptr).ok());
      ASSERT_TRUE(work.Enqueue(rank, Close()).ok());
    }
    EXPECT_EQ(Errors(*pair), (std::array<uint32_t, 2>{kInvalidId, kInvalidId}));
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(*pair->ReadClosedSteps(rank), 0u);
    ExpectRecovers(*pair);
  }
}

TEST_P(PairGpuTest, CancelEndsAParkedWait) {
  const std::unique_ptr<CudaPair> pair = MakePair(GetParam(), 2, 20'000'000'000);
  Workload work = *Workload::Create(*pair, 1);
  const SteadyClock clock;
  const int64_t start_ns = clock.NowNs();
  ASSERT_TRUE(work.Enqueue(0, SumOf(1000)).ok());
  ASSERT_TRUE(pair->Cancel().ok());
  const std::array<uint32_t, 2> errors = Errors(*pair);
  EXPECT_EQ(errors[0], kCancelled);
  EXPECT_EQ(errors[1] & ~kCancelled, 0u);
  EXPECT_LT(clock.NowNs() - start_ns, int64_t{10'000'000'000}) << "it did not wait it out";
  ExpectRecovers(*pair);
}

TEST_P(PairGpuTest, EpochLimitFailsClosedAndAResetStartsAgain) {
  constexpr uint32_t kLimit = 16;
  const std::unique_ptr<CudaPair> pair = MakePair(GetParam(), 2, kShortNs, kLimit);
  Workload work = *Workload::Create(*pair, 1);
  for (int generation = 0; generation < 20; ++generation) {  // more than a tag can tell apart
    for (uint32_t op = 0; op <= kLimit; ++op) {
      for (int rank = 1; rank >= 0; --rank) ASSERT_TRUE(work.Enqueue(rank, SumOf(100)).ok());
      const uint32_t expected = op < kLimit ? 0 : kEpochExhausted;
      ASSERT_EQ(Errors(*pair), (std::array<uint32_t, 2>{expected, expected})) << op;
    }
    ASSERT_TRUE(pair->Recover().ok());
  }
}

TEST_P(PairGpuTest, SecondBusyStreamOfARankIsRefused) {
  const std::unique_ptr<CudaPair> pair = MakePair(GetParam());
  Workload first = *Workload::Create(*pair, 1), second = *Workload::Create(*pair, 2);
  ScriptOp slow = SumOf(1000);
  slow.stall_ns[0] = slow.stall_ns[1] = 20'000'000;
  for (int rank = 1; rank >= 0; --rank) ASSERT_TRUE(first.Enqueue(rank, slow).ok());
  EXPECT_EQ(second.Enqueue(0, SumOf(1000)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Errors(*pair), (std::array<uint32_t, 2>{}));
  for (int rank = 1; rank >= 0; --rank) ASSERT_TRUE(second.Enqueue(rank, SumOf(1000)).ok());
  EXPECT_EQ(Errors(*pair), (std::array<uint32_t, 2>{}));
}

TEST_P(PairGpuTest, LateDrainPoisonsForGood) {
  const std::unique_ptr<CudaPair> pair = MakePair(GetParam(), 2, kShortNs);
  Workload work = *Workload::Create(*pair, 1);
  ScriptOp slow = SumOf(1000);
  slow.stall_ns[0] = 3'000'000'000;
  ASSERT_TRUE(work.Enqueue(0, slow).ok());
  EXPECT_EQ(pair->Drain().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(pair->is_poisoned());
  EXPECT_FALSE(work.Enqueue(1, SumOf(1000)).ok());
  EXPECT_FALSE(pair->NoteReplay(0, work.stream(0)).ok());
  EXPECT_FALSE(pair->Recover().ok());
  EXPECT_FALSE(pair->ReadStatus(0).ok());
  cudaStreamSynchronize(work.stream(0));
  EXPECT_FALSE(pair->Recover().ok()) << "not even when idle at last";
}

TEST_P(PairGpuTest, OversizedGridsAndCountsAreRefused) {
  const std::unique_ptr<CudaPair> pair = MakePair(GetParam());
  Workload work = *Workload::Create(*pair, 1);
  EXPECT_FALSE(work.Enqueue(0, SumOf(1000, kMaxBlocks + 1)).ok());
  EXPECT_FALSE(work.Enqueue(0, SumOf(1000, 0)).ok());
  EXPECT_FALSE(work.Enqueue(0, SumOf(pair->options().max_words + 1)).ok());
  EXPECT_FALSE(work.Enqueue(0, MarginOf(cuda::kMaxExchanges + 1)).ok());
  EXPECT_FALSE(pair->is_poisoned());
}

INSTANTIATE_TEST_SUITE_P(Protocols, PairGpuTest,
                         testing::Values(ProtocolKind::kLine, ProtocolKind::kAck),
                         [](const auto& tested) { return ProtocolName(tested.param); });

class PeerMemoryTest : public PairGpuTest {};

TEST_P(PeerMemoryTest, OnlyPlainAllocationsOfTheCardAreAccepted) {
  const int ordinal = Cards()[0].ordinal;
  const device::DeviceGuard guard(ordinal);
  void* plain = nullptr;
  ASSERT_EQ(cudaMalloc(&plain, 1 << 20), cudaSuccess);
  EXPECT_TRUE(device::CheckPeerMemory(plain, 1 << 20, ordinal).ok());
  EXPECT_FALSE(device::CheckPeerMemory(static_cast<char*>(plain) + 256, 256, ordinal).ok());
  EXPECT_FALSE(device::CheckPeerMemory(plain, size_t{1} << 40, ordinal).ok());
  EXPECT_FALSE(device::CheckPeerMemory(plain, 256, ordinal + 1).ok());
  cudaFree(plain);
  void* managed = nullptr;
  ASSERT_EQ(cudaMallocManaged(&managed, 1 << 20), cudaSuccess);
  EXPECT_FALSE(device::CheckPeerMemory(managed, 1 << 20, ordinal).ok());
  cudaFree(managed);
  void* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 1 << 20), cudaSuccess);
  EXPECT_FALSE(device::CheckPeerMemory(pinned, 1 << 20, ordinal).ok());
  cudaFreeHost(pinned);
  const device::Stream stream = *device::Stream::Create();
  void* pooled = nullptr;
  ASSERT_EQ(cudaMallocAsync(&pooled, 1 << 20, stream.get()), cudaSuccess);
  ASSERT_TRUE(stream.Synchronize().ok());
  const absl::Status refused = device::CheckPeerMemory(pooled, 1 << 20, ordinal);
  EXPECT_NE(std::string(refused.message()).find("pool"), std::string::npos) << refused;
  cudaFreeAsync(pooled, stream.get());
}

TEST_P(PeerMemoryTest, LaunchBlockingIsRefusedWithItsName) {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  CudaPairOptions options;
  options.cards = {Cards()[0], Cards()[kCards - 1]};
  const absl::Status refused = CudaPair::Create(options).status();
  unsetenv("CUDA_LAUNCH_BLOCKING");
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(refused.message()).find("CUDA_LAUNCH_BLOCKING"), std::string::npos);
  EXPECT_TRUE(CheckLaunchMode().ok());
}

#if TP2_TEST_CARDS == 2
TEST_P(PeerMemoryTest, EnablingTwiceLeavesNoErrorAndAPendingOneIsReported) {
  const int a = Cards()[0].ordinal, b = Cards()[1].ordinal;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(device::EnablePeerAccess(a, b).ok());
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_NE(cudaMemset(nullptr, 0, 16), cudaSuccess);
  EXPECT_FALSE(device::EnablePeerAccess(a, b).ok());
  EXPECT_NE(cudaPeekAtLastError(), cudaSuccess) << "not swallowed";
  EXPECT_NE(cudaGetLastError(), cudaSuccess);
}
#endif

#if TP2_TEST_CARDS == 2
TEST_P(PeerMemoryTest, PeerDataArrivesBothWays) {
  constexpr int64_t kLines = 1'000'000;
  for (int from = 0; from < 2; ++from) {
    ASSERT_TRUE(device::EnablePeerAccess(Cards()[from].ordinal, Cards()[1 - from].ordinal).ok());
    EXPECT_TRUE(CheckPeerData(Cards()[from], Cards()[1 - from], kLines).ok());
  }
}
#endif

TEST_P(PeerMemoryTest, CaptureOnAnotherCardsStreamOrOfNothingIsRefused) {
  const device::DeviceInfo& card = Cards()[0];
  const device::DeviceGuard guard(card.ordinal);
  const device::Stream stream = *device::Stream::Create();
  const auto nothing = [] { return absl::OkStatus(); };
  EXPECT_FALSE(CapturedGraph::Capture(card.ordinal, stream.get(), nothing).ok());
  if (kCards == 2) {
    const auto stall = [&] {
      cuda::LaunchStall(1, stream.get());
      return absl::OkStatus();
    };
    EXPECT_TRUE(CapturedGraph::Capture(card.ordinal, stream.get(), stall).ok());
    EXPECT_FALSE(CapturedGraph::Capture(Cards()[1].ordinal, stream.get(), stall).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Once, PeerMemoryTest, testing::Values(ProtocolKind::kLine),
                         [](const auto& tested) { return ProtocolName(tested.param); });

}  // namespace
}  // namespace tp2::coll
