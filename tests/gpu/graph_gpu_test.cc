// The engine's graphs: all of them are there before the first STEP, they hold what they should, and
// nothing is allocated after that.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <iostream>

#include "libcore/device/buffer.h"
#include "libcore/drafter/drafter.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/self_run.h"
#include "tests/gpu/op_pair.h"

namespace tp2 {
namespace {

std::unique_ptr<StepEngine> NewEngine(const std::string& shape, const std::string& backend,
                                      const std::string& mode, bool uses_graphs = true) {
  auto engine = MakeEngine({.model_dir = SyntheticFolder(shape),
                            .backend = backend,
                            .mode = mode,
                            .uses_graphs = uses_graphs});
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

const std::map<GraphKey, device::Graph>& GraphsOf(StepEngine& engine) {
  return dynamic_cast<Drafter<CudaOps>&>(engine).ops().graphs();
}

TEST(GraphGpuTest, EveryKeyIsRecordedAndHoldsKernelsAndTheReadBackAlone) {
  TP2_NEEDS_GPU();
  for (const char* mode : {"one-card", "emulated"}) {
    const auto engine = NewEngine("medium", "cuda", mode);
    ASSERT_NE(engine, nullptr);
    const auto& graphs = GraphsOf(*engine);
    EXPECT_EQ(graphs.size(), 52u);
    std::cout << "kernels per graph, " << mode << ":";
    for (const GraphKey& key : AllGraphKeys()) {
      ASSERT_TRUE(graphs.contains(key)) << key.Name();
      const device::GraphNodes& nodes = graphs.at(key).nodes();
      EXPECT_GT(nodes.kernels, 0) << key.Name();
      EXPECT_EQ(nodes.copies, key.kind == GraphKey::Kind::kDraft ? 1 : 0) << key.Name();
      EXPECT_EQ(nodes.fills + nodes.events, 0) << key.Name();
      std::cout << "  " << key.Name() << " " << nodes.kernels;
    }
    std::cout << "\n";
  }
}

TEST(GraphGpuTest, EagerModeRecordsNothing) {
  TP2_NEEDS_GPU();
  const auto engine = NewEngine("tiny", "cuda", "one-card", /*uses_graphs=*/false);
  ASSERT_NE(engine, nullptr);
  EXPECT_TRUE(GraphsOf(*engine).empty());
}

TEST(GraphGpuTest, EveryKeyHasTheBitsOfTheCpuInEveryModeWithAndWithoutGraphs) {
  TP2_NEEDS_GPU();
  for (const char* shape : {"tiny", "tiny-v4", "tiny-mixed", "medium"}) {
    const auto cpu = RunGrid(*NewEngine(shape, "cpu", "one-card"), {});
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    EXPECT_EQ(cpu->plain_differences, 0);
    for (const char* mode : {"one-card", "emulated"}) {
      for (const bool uses_graphs : {false, true}) {
        const auto cuda = RunGrid(*NewEngine(shape, "cuda", mode, uses_graphs), {});
        ASSERT_TRUE(cuda.ok()) << cuda.status();
        EXPECT_EQ(cuda->digest, cpu->digest) << shape << " " << mode << " graphs " << uses_graphs;
        EXPECT_EQ(cuda->plain_differences, 0) << shape << " " << mode << " graphs " << uses_graphs;
      }
    }
  }
}

TEST(GraphGpuTest, NothingIsAllocatedOnceTheEngineIsMade) {
  TP2_NEEDS_GPU();
  const auto engine = NewEngine("medium", "cuda", "one-card");
  ASSERT_NE(engine, nullptr);
  size_t free_before = 0, free_after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_before, &total), cudaSuccess);
  const int64_t count_before = device::Allocation::created_count();
  ASSERT_TRUE(RunGrid(*engine, {}).ok());
  ASSERT_TRUE(RunSelf(*engine, {.rounds = 12}).ok());
  ASSERT_EQ(cudaMemGetInfo(&free_after, &total), cudaSuccess);
  EXPECT_EQ(device::Allocation::created_count(), count_before);
  EXPECT_EQ(free_after, free_before);
}

TEST(GraphGpuTest, DeviceTimesAreThoseOfTheDeviceOnly) {
  TP2_NEEDS_GPU();
  for (const char* backend : {"cpu", "cuda"}) {
    const auto engine = NewEngine("tiny", backend, "one-card");
    ASSERT_NE(engine, nullptr);
    const std::vector<Bf16> rows(static_cast<size_t>(engine->info().config.tap_values()));
    const StepEntry entry = {{.slot = 0, .position = 0, .row_count = 1, .values = rows}, 1};
    const auto outputs = engine->Step({.entries = {&entry, 1}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const bool has_device = backend == std::string("cuda");
    EXPECT_EQ(outputs->insert_device_ns > 0, has_device);
    EXPECT_EQ(outputs->draft_device_ns > 0, has_device);
    EXPECT_LE(outputs->draft_device_ns, outputs->insert_ns + outputs->draft_ns);
  }
}

}  // namespace
}  // namespace tp2
