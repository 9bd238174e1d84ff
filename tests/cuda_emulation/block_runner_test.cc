// What the emulation of blocks promises: values cross a warp, barriers order a block, and what
// would hang or read garbage on a card ends here with the reason.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace tp2::cuda_emulation {
namespace {

TEST(BlockRunner, EveryThreadOfEveryBlockRunsOnce) {
  std::array<std::array<int, 64>, 6> runs = {};
  RunGrid({.grid = dim3(3, 2), .block = 64}, [&runs] {
    ++runs[blockIdx.y * gridDim.x + blockIdx.x][threadIdx.x];
    EXPECT_EQ(blockDim.x, 64u);
  });
  for (const auto& block : runs) {
    for (const int count : block) EXPECT_EQ(count, 1);
  }
}

TEST(BlockRunner, ValuesCrossAWarpAgainAndAgain) {
  std::array<int, 64> sums = {};
  RunGrid({.grid = 1, .block = 64}, [&sums] {
    int sum = static_cast<int>(threadIdx.x);
    for (int distance = 16; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(~0u, sum, distance);
    }
    sums[threadIdx.x] = sum;
  });
  for (int i = 0; i < 64; ++i) EXPECT_EQ(sums[i], i < 32 ? 496 : 1520) << i;
}

TEST(BlockRunner, ABarrierLetsAllWarpsSeeWhatOneWrote) {
  std::array<int, 96> seen = {};
  RunGrid({.grid = 1, .block = 96, .shared_bytes = 96 * sizeof(int)}, [&seen] {
    int* const shared = static_cast<int*>(DynamicSharedMemory());
    shared[threadIdx.x] = static_cast<int>(threadIdx.x);
    __syncthreads();
    seen[threadIdx.x] = shared[95 - threadIdx.x];
  });
  for (int i = 0; i < 96; ++i) EXPECT_EQ(seen[i], 95 - i);
}

TEST(BlockRunner, AThreadThatHasEndedHoldsNoBarrierUp) {
  int passed = 0;
  RunGrid({.grid = 1, .block = 64}, [&passed] {
    if (threadIdx.x >= 32) return;
    __syncthreads();
    ++passed;
  });
  EXPECT_EQ(passed, 32);
}

TEST(BlockRunnerDeathTest, ALaneThatIsMissingInAnExchangeIsTold) {
  const auto half_a_warp = [] {
    if (threadIdx.x < 16) (void)__shfl_sync(~0u, 1, 0);
  };
  EXPECT_DEATH(RunGrid({.grid = 1, .block = 32}, half_a_warp), "waits for a lane in vain");
  const auto some_lanes = [] { (void)__shfl_sync(0xFFFFu, 1, 0); };
  EXPECT_DEATH(RunGrid({.grid = 1, .block = 32}, some_lanes), "must name all lanes");
}

TEST(BlockRunnerDeathTest, AByteBehindTheSharedMemoryIsTold) {
  const auto one_too_far = [] { static_cast<volatile char*>(DynamicSharedMemory())[64] = 1; };
  EXPECT_DEATH(RunGrid({.grid = 1, .block = 1, .shared_bytes = 64}, one_too_far), "");
}

}  // namespace
}  // namespace tp2::cuda_emulation
