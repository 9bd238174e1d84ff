// step_benchmark MODEL_DIR [benchmark flags]: wall time of the draft step and of the context insert
// on the CPU. Full windows, random taps. Never a ctest: its figures belong to the machine and the
// moment.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <vector>

#include "libcore/base/rng.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/workload.h"

namespace tp2 {
namespace {

std::unique_ptr<StepEngine> engine;

std::vector<Bf16> Rows(int count) {
  Rng rng(7);
  return RandomRows(rng, int64_t{count} * engine->info().config.tap_values());
}

void FillWindows() {
  const int window = std::min(engine->info().config.window, kMaxRowsPerMessage);
  const std::vector<Bf16> rows = Rows(window);
  for (int slot = 0; slot < kMaxRequests; ++slot) {
    if (!engine->window(slot).is_empty()) continue;
    const absl::Status status =
        engine->Insert({.slot = slot, .position = 0, .row_count = window, .values = rows});
    if (!status.ok()) std::cerr << status.message() << "\n";
  }
}

void DraftStep(benchmark::State& state) {
  FillWindows();
  std::vector<StepEntry> entries(static_cast<size_t>(state.range(0)));
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i].rows.slot = static_cast<int>(i);
    entries[i].rows.position = engine->window(static_cast<int>(i)).length();
    entries[i].anchor = static_cast<int32_t>(100 + i);
  }
  for (auto _ : state) {
    auto outputs = engine->Step({.entries = entries, .n_out = static_cast<int>(state.range(1))});
    if (!outputs.ok()) state.SkipWithError("the step failed");
    benchmark::DoNotOptimize(outputs);
  }
}
BENCHMARK(DraftStep)->ArgsProduct({{1, 4}, {4, 5}})->UseRealTime()->Unit(benchmark::kMillisecond);

void ContextInsert(benchmark::State& state) {
  const int count = static_cast<int>(state.range(0));
  const std::vector<Bf16> rows = Rows(count);
  for (auto _ : state) {
    const int64_t position = engine->window(5).length();
    const absl::Status status =
        engine->Insert({.slot = 5, .position = position, .row_count = count, .values = rows});
    if (!status.ok()) state.SkipWithError("the insert failed");
  }
}
BENCHMARK(ContextInsert)->Arg(6)->Arg(128)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tp2

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    std::cerr << "usage: step_benchmark MODEL_DIR [--benchmark_...]\n";
    return 2;
  }
  auto made = tp2::MakeEngine({.model_dir = argv[1], .backend = "cpu"});
  if (!made.ok()) {
    std::cerr << made.status().message() << "\n";
    return 1;
  }
  tp2::engine = std::move(*made);
  benchmark::RunSpecifiedBenchmarks();
  tp2::engine.reset();
}
