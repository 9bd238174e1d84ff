// Weights per second of processor time (all threads added up, so that other jobs on the machine
// hardly matter), everything included: input transform, decoding, sums, output transform. Not a
// test: nothing is asserted.
#include <benchmark/benchmark.h>

#include "tests/exl3/test_matrix.h"

namespace tp2::exl3 {
namespace {

// Enough distinct matrices that weights come from memory, not from the last-level cache.
constexpr int64_t kTrellisBytes = int64_t{96} << 20;

void Run(benchmark::State& state, Codebook codebook) {
  const int bits = static_cast<int>(state.range(0));
  const int rows = static_cast<int>(state.range(1));
  const int k = static_cast<int>(state.range(2));
  const int n = static_cast<int>(state.range(3));
  ThreadPool pool(static_cast<int>(state.range(4)));
  const int64_t matrix_bytes = int64_t{k} * n / 8 * bits;
  std::vector<TestMatrix> matrices;
  for (int64_t i = 0; i * matrix_bytes < kTrellisBytes; ++i) {
    matrices.push_back(RandomMatrix(k, n, bits, codebook, static_cast<uint64_t>(i)));
  }
  const std::vector<float> x = RandomRows(int64_t{rows} * k, 1);
  std::vector<float> y(static_cast<size_t>(rows) * n);
  size_t next = 0;
  for (auto _ : state) {
    Linear({.matrix = matrices[next].view(),
            .x = x.data(),
            .x_stride = k,
            .rows = rows,
            .y = y.data(),
            .y_stride = n},
           pool);
    next = (next + 1) % matrices.size();
  }
  state.counters["weights"] = benchmark::Counter(static_cast<double>(int64_t{k} * n),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

void BM_Mul1(benchmark::State& state) { Run(state, Codebook::kMul1); }
void BM_Mcg(benchmark::State& state) { Run(state, Codebook::kMcg); }

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"bits", "rows", "k", "n", "threads"})->MeasureProcessCPUTime();
  for (const int threads : {1, 2}) {
    for (const int rows : {1, 5, 20}) {
      benchmark->Args({2, rows, 5120, 2304, threads});
      benchmark->Args({5, rows, 1280, 32768, threads});
      benchmark->Args({6, rows, 5120, 16384, threads});
    }
  }
}

// A dozen routed experts in one call: w1 and w3 of each, two rows each.
void BM_ExpertBatch(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  constexpr int kExperts = 12, kRows = 2, kK = 5120, kN = 2304;
  const std::vector<float> x = RandomRows(kRows * kK, 1);
  std::vector<TestMatrix> matrices;
  std::vector<std::vector<float>> outputs(2 * kExperts, std::vector<float>(kRows * kN));
  for (int i = 0; i < 2 * kExperts; ++i) {
    matrices.push_back(RandomMatrix(kK, kN, 2, Codebook::kMul1, static_cast<uint64_t>(i)));
  }
  std::vector<LinearArgs> batch;
  for (int i = 0; i < 2 * kExperts; ++i) {
    batch.push_back({.matrix = matrices[i].view(),
                     .x = x.data(),
                     .x_stride = kK,
                     .rows = kRows,
                     .y = outputs[i].data(),
                     .y_stride = kN});
  }
  for (auto _ : state) LinearBatch(batch, pool);
  state.counters["weights"] =
      benchmark::Counter(2.0 * kExperts * kK * kN, benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(BM_ExpertBatch)->ArgName("threads")->MeasureProcessCPUTime()->Arg(1)->Arg(2);
BENCHMARK(BM_Mul1)->Apply(Shapes);
BENCHMARK(BM_Mcg)
    ->ArgNames({"bits", "rows", "k", "n", "threads"})
    ->MeasureProcessCPUTime()
    ->Args({2, 5, 5120, 2304, 1});

}  // namespace
}  // namespace tp2::exl3

BENCHMARK_MAIN();
