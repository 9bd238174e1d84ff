// A device fault ends the engine.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <iostream>
#include <vector>

#include "libcore/drafter/make_engine.h"
#include "libcore/ops/cuda/kernels.h"
#include "tests/gpu/op_pair.h"

namespace tp2 {
namespace {

// In a process of its own: nothing of the context can be used afterwards.
[[noreturn]] void FaultAndLeave() {
  const auto engine =
      *MakeEngine({.model_dir = SyntheticFolder("tiny"), .backend = "cuda", .mode = "one-card"});
  const std::vector<Bf16> rows(static_cast<size_t>(engine->info().config.tap_values()));
  StepEntry entry = {{.slot = 0, .position = 0, .row_count = 1, .values = rows}, 1};
  bool is_right = engine->Step({.entries = {&entry, 1}}).ok() && engine->is_healthy();
  cuda::LaunchWiden(reinterpret_cast<const Bf16*>(16), 1024, reinterpret_cast<float*>(16),
                    {.stream = cudaStreamLegacy});
  cudaDeviceSynchronize();
  entry.rows = {.slot = 0, .position = 1, .values = {}};
  for (int attempt = 0; attempt < 2; ++attempt) {
    const absl::Status status = engine->Step({.entries = {&entry, 1}}).status();
    std::cerr << status.message() << "\n";
    is_right = is_right && status.code() == absl::StatusCode::kAborted && !engine->is_healthy();
  }
  ::_exit(is_right ? 0 : 1);
}

TEST(DeviceFaultGpuDeathTest, ADeviceFaultIsAbortedAndPoisonsTheEngine) {
  TP2_NEEDS_GPU();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(FaultAndLeave(), testing::ExitedWithCode(0), "illegal.*restart the process");
}

}  // namespace
}  // namespace tp2
