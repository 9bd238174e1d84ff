// Routed and shared experts of the CPU op set, and the sum of the two halves.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "libcore/exl3/linear.h"
#include "libcore/math/swiglu.h"
#include "libcore/ops/cpu/cpu_ops.h"
#include "libcore/ops/cpu/storage.h"

namespace tp2 {

// One expert and the rows that chose it.
struct ExpertJob {
  const RankExpert* expert = nullptr;
  std::vector<int> rows;
  std::vector<float> weights;  // gate weight per row
  std::vector<float> x, gate,
      up;  // [rows, dim], [rows, channels] twice; gate becomes the activation
  std::vector<std::vector<float>> partials;  // per half [rows, dim]
};

// Routed experts in ascending id, the shared expert last: the order in which partials are added.
inline std::vector<ExpertJob> GroupByExpert(const ExpertsArgs& args, int top_k) {
  std::map<int, ExpertJob> routed;
  for (int row = 0; row < args.rows; ++row) {
    for (int i = 0; i < top_k; ++i) {
      const int expert = args.choices[row].experts[i];
      ExpertJob& job = routed[expert];
      job.expert = &args.stage->experts[expert];
      job.rows.push_back(row);
      job.weights.push_back(args.choices[row].weights[i]);
    }
  }
  std::vector<ExpertJob> jobs;
  for (auto& [expert, job] : routed) jobs.push_back(std::move(job));
  ExpertJob& shared = jobs.emplace_back();
  shared.expert = &args.stage->shared;
  shared.rows.resize(static_cast<size_t>(args.rows));
  std::iota(shared.rows.begin(), shared.rows.end(), 0);
  shared.weights.assign(static_cast<size_t>(args.rows), 1.0f);
  return jobs;
}

// Gathers each job's rows of x; the products w1 x and w3 x of all jobs.
inline std::vector<exl3::LinearArgs> UpProducts(std::vector<ExpertJob>& jobs, const float* x,
                                                int dim) {
  std::vector<exl3::LinearArgs> batch;
  for (ExpertJob& job : jobs) {
    const int rows = static_cast<int>(job.rows.size());
    const int channels = job.expert->w1.n;
    for (const int row : job.rows) {
      job.x.insert(job.x.end(), x + static_cast<int64_t>(row) * dim,
                   x + static_cast<int64_t>(row + 1) * dim);
    }
    job.gate.resize(static_cast<size_t>(rows) * channels);
    job.up.resize(job.gate.size());
    batch.push_back({job.expert->w1, job.x.data(), dim, rows, job.gate.data(), channels});
    batch.push_back({job.expert->w3, job.x.data(), dim, rows, job.up.data(), channels});
  }
  return batch;
}

// The products w2 z of all jobs, one per half.
inline std::vector<exl3::LinearArgs> DownProducts(std::vector<ExpertJob>& jobs, int dim) {
  std::vector<exl3::LinearArgs> batch;
  for (ExpertJob& job : jobs) {
    const int rows = static_cast<int>(job.rows.size());
    const int channels = job.expert->w1.n;
    int begin = 0;
    for (const exl3::MatrixView& w2 : job.expert->w2) {
      auto& partial = job.partials.emplace_back(static_cast<size_t>(rows) * dim);
      batch.push_back({w2, job.gate.data() + begin, channels, rows, partial.data(), dim});
      begin += w2.k;
    }
  }
  return batch;
}

// sum = the partials that the jobs hold for `row`, in the order of the jobs. sum: [dim].
inline void SumPartials(const std::vector<ExpertJob>& jobs, int half, int row, int dim,
                        float* sum) {
  bool is_started = false;
  for (const ExpertJob& job : jobs) {
    for (size_t i = 0; i < job.rows.size(); ++i) {
      if (job.rows[i] != row) continue;
      const float* part = job.partials[half].data() + i * dim;
      for (int c = 0; c < dim; ++c) sum[c] = is_started ? sum[c] + part[c] : part[c];
      is_started = true;
    }
  }
}

template <class S, class L>
void CpuOps<S, L>::Experts(int rank, const ExpertsArgs& args) {
  const int dim = config_.dim;
  std::vector<ExpertJob> jobs = GroupByExpert(args, config_.experts_per_token);
  linear_.Run(UpProducts(jobs, args.x, dim), pool_);
  pool_.ParallelFor(static_cast<int64_t>(jobs.size()), [&](int64_t index) {
    ExpertJob& job = jobs[index];
    const size_t channels = static_cast<size_t>(job.expert->w1.n);
    for (size_t i = 0; i < job.gate.size(); ++i) {
      job.gate[i] =
          SwiGlu(job.gate[i], job.up[i], config_.swiglu_limit) * job.weights[i / channels];
    }
  });
  linear_.Run(DownProducts(jobs, dim), pool_);
  const int halves = static_cast<int>(args.stage->shared.w2.size());
  pool_.ParallelFor(static_cast<int64_t>(halves) * args.rows, [&](int64_t index) {
    const int half = static_cast<int>(index / args.rows);
    const int row = static_cast<int>(index % args.rows);
    SumPartials(jobs, half, row, dim,
                args.partials + half * args.half_stride + static_cast<int64_t>(row) * dim);
  });
}

// BITS: half 0 + half 1, whoever holds them.
template <class S, class L>
void CpuOps<S, L>::AllReduce(std::span<const AllReduceArgs<S>> ranks) {
  const bool is_split = ranks.size() > 1;
  const float* half0 = ranks[0].partials;
  const float* half1 = is_split ? ranks[1].partials : half0 + ranks[0].half_stride;
  const int64_t count = static_cast<int64_t>(ranks[0].rows) * config_.dim;
  for (int64_t i = 0; i < count; ++i) {
    const S y = Storage<S>::Store(half0[i] + half1[i]);
    for (const AllReduceArgs<S>& rank : ranks) rank.y[i] = y;
  }
}

}  // namespace tp2
