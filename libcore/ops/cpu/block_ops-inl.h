// Row-wise operations of the CPU op set: embedding, norms, hyper-connections, KV and query tails,
// routing.
#pragma once

#include <algorithm>
#include <cmath>

#include "libcore/math/fake_quant.h"
#include "libcore/ops/cpu/cpu_ops.h"
#include "libcore/ops/cpu/cpu_ops_common.h"
#include "libcore/ops/cpu/storage.h"
#include "libcore/ops/cpu/stream_kernels.h"

namespace tp2 {

template <class S, class L>
CpuOps<S, L>::CpuOps(const DrafterConfig& config, int rank_count, int thread_count)
    : config_(config),
      pool_(thread_count),
      score_scale_(1.0f / std::sqrt(static_cast<float>(config.head_dim))),
      errors_(static_cast<size_t>(rank_count)) {
  for (int pair = 0; pair < config.rope_dims / 2; ++pair) {
    frequencies_.push_back(RopeFrequency(config.rope_theta, config.rope_dims, pair));
  }
}

template <class S, class L>
std::vector<float> CpuOps<S, L>::WidenRow(Half16View view, int64_t row) const {
  std::vector<float> values(static_cast<size_t>(view.columns));
  for (int i = 0; i < view.columns; ++i) values[i] = view.At(row * view.columns + i);
  return values;
}

template <class S, class L>
void CpuOps<S, L>::Widen(int rank, const WidenArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) args.out[i] = ToFloat(args.in[i]);
}

template <class S, class L>
void CpuOps<S, L>::Linear(int rank, std::span<const LinearOpArgs> products) {
  std::vector<exl3::LinearArgs> batch;
  for (const LinearOpArgs& args : products) {
    batch.push_back({.matrix = *args.matrix,
                     .x = args.x,
                     .x_stride = args.x_stride,
                     .rows = args.rows,
                     .y = args.y,
                     .y_stride = args.matrix->n});
  }
  linear_.Run(batch, pool_);
}

template <class S, class L>
void CpuOps<S, L>::RmsNorm(int rank, const RmsNormArgs& args) {
  const std::vector<float> weight = WidenRow(args.weight, 0);
  pool_.ParallelFor(args.rows, [&](int64_t row) {
    const float* x = args.x + row * args.columns;
    float* y = args.y + row * args.columns;
    const float inverse = InverseRms(x, args.columns, args.eps);
    for (int i = 0; i < args.columns; ++i) y[i] = weight[i] * (x[i] * inverse);
  });
}

template <class S, class L>
void CpuOps<S, L>::KvFinish(int rank, const KvFinishArgs<S>& args) {
  const int dims = config_.head_dim;
  const int plain = dims - config_.rope_dims;
  const int quantized =
      config_.kv_fake_quant == KvFakeQuant::kReference ? config_.fake_quant_dims() : 0;
  const int group = config_.fake_quant_group();
  std::vector<float> k(static_cast<size_t>(dims));
  std::vector<CosSin> table(frequencies_.size());
  for (int row = 0; row < args.rows; ++row) {
    if (args.out_rows[row] < 0) continue;
    std::copy_n(args.x + static_cast<int64_t>(row) * dims, dims, k.begin());
    RopeTableRow(args.positions[row], frequencies_.data(), static_cast<int>(table.size()),
                 table.data());
    for (size_t i = 0; i < table.size(); ++i) {
      RopePair(table[i], k[plain + 2 * i], k[plain + 2 * i + 1]);
    }
    for (int begin = 0; begin < quantized; begin += group) {
      const int end = std::min(quantized, begin + group);
      float amax = 0.0f;
      for (int i = begin; i < end; ++i) amax = std::max(amax, std::fabs(k[i]));
      const float scale = FakeQuantScale(amax);
      for (int i = begin; i < end; ++i) k[i] = FakeQuantValue(k[i], scale);
    }
    S* out = args.out + static_cast<int64_t>(args.out_rows[row]) * dims;
    for (int i = 0; i < dims; ++i) out[i] = Storage<S>::Store(k[i]);
  }
}

template <class S, class L>
void CpuOps<S, L>::QueryFinish(int rank, const QueryFinishArgs& args) {
  const int dims = config_.head_dim;
  const int plain = dims - config_.rope_dims;
  pool_.ParallelFor(args.rows, [&](int64_t row) {
    std::vector<CosSin> table(frequencies_.size());
    RopeTableRow(args.positions[row], frequencies_.data(), static_cast<int>(table.size()),
                 table.data());
    for (int head = 0; head < args.heads; ++head) {
      float* q = args.q + (row * args.heads + head) * dims;
      if (config_.arch == Arch::kV4) {
        const float inverse = InverseRms(q, dims, config_.norm_eps);
        for (int i = 0; i < dims; ++i) q[i] = q[i] * inverse;
      }
      for (size_t i = 0; i < table.size(); ++i) {
        RopePair(table[i], q[plain + 2 * i], q[plain + 2 * i + 1]);
      }
    }
  });
}

template <class S, class L>
void CpuOps<S, L>::Embed(int rank, const EmbedArgs<S>& args) {
  const int dim = config_.dim;
  for (int row = 0; row < args.rows; ++row) {
    const std::vector<float> e = WidenRow(args.embed, args.ids[row]);
    for (int stream = 0; stream < kStreams; ++stream) {
      S* h = args.streams + (static_cast<int64_t>(row) * kStreams + stream) * dim;
      for (int i = 0; i < dim; ++i) h[i] = Storage<S>::Store(e[i]);
      args.pre[row * kStreams + stream] = stream == 0 ? 1.0f : 0.0f;
    }
  }
}

template <class S, class L>
typename CpuOps<S, L>::StreamDots CpuOps<S, L>::DotStreams(const S* streams, int rows,
                                                           const float* fn, int outputs) {
  const int columns = kStreams * config_.dim;
  std::vector<float> x(static_cast<size_t>(rows) * columns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = Storage<S>::Load(streams[i]);
  StreamDots result;
  result.dots.resize(static_cast<size_t>(rows) * outputs);
  CanonicalMatVec({.form = RowForm::kF32,
                   .weights = fn,
                   .weight_rows = outputs,
                   .columns = columns,
                   .x = x.data(),
                   .x_stride = columns,
                   .x_rows = rows,
                   .y = result.dots.data(),
                   .y_stride = outputs},
                  pool_);
  for (int row = 0; row < rows; ++row) {
    result.inverse_rms.push_back(
        InverseRms(x.data() + static_cast<int64_t>(row) * columns, columns, config_.norm_eps));
  }
  return result;
}

template <class S, class L>
void CpuOps<S, L>::Mix(int rank, const MixArgs<S>& args) {
  const StreamDots streams = DotStreams(args.streams, args.rows, args.weights.fn, kMixOutputs);
  MixParameters parameters = {};
  std::copy_n(args.weights.scale, 3, parameters.scale);
  std::copy_n(args.weights.base, kMixOutputs, parameters.base);
  parameters.hc_eps = config_.hc_eps;
  parameters.sinkhorn_iterations = config_.sinkhorn_iterations;
  for (int row = 0; row < args.rows; ++row) {
    args.mix[row] =
        ComputeMix(streams.dots.data() + row * kMixOutputs, streams.inverse_rms[row], parameters);
  }
}

template <class S, class L>
void CpuOps<S, L>::HeadMix(int rank, const HeadMixArgs<S>& args) {
  const StreamDots streams = DotStreams(args.streams, args.rows, args.fn, kStreams);
  for (int row = 0; row < args.rows; ++row) {
    for (int i = 0; i < kStreams; ++i) {
      const float dot = streams.dots[row * kStreams + i] * streams.inverse_rms[row];
      args.pre[row * kStreams + i] =
          Sigmoid(std::fma(dot, args.scale[0], args.base[i])) + config_.hc_eps;
    }
  }
}

template <class S, class L>
void CpuOps<S, L>::Collapse(int rank, const CollapseArgs<S>& args) {
  const int dim = config_.dim;
  pool_.ParallelFor(args.rows, [&](int64_t row) {
    const int64_t source = args.pick.Source(static_cast<int>(row));
    const S* streams = args.streams + source * kStreams * dim;
    const float* weights = args.weights + source * args.weight_stride;
    std::vector<float> h(static_cast<size_t>(kStreams) * dim);
    for (int i = 0; i < kStreams * dim; ++i) h[i] = Storage<S>::Load(streams[i]);
    CollapseStreams(weights, h.data(), dim, args.x + row * dim);
  });
}

template <class S, class L>
void CpuOps<S, L>::Update(int rank, const UpdateArgs<S>& args) {
  const int dim = config_.dim;
  pool_.ParallelFor(args.rows, [&](int64_t row) {
    S* streams = args.streams + row * kStreams * dim;
    std::vector<float> h(static_cast<size_t>(kStreams) * dim);
    std::vector<float> y(static_cast<size_t>(dim));
    for (int i = 0; i < kStreams * dim; ++i) h[i] = Storage<S>::Load(streams[i]);
    for (int i = 0; i < dim; ++i) y[i] = Storage<S>::Load(args.y[row * dim + i]);
    UpdateStreams(args.mix[row], y.data(), dim, h.data());
    for (int i = 0; i < kStreams * dim; ++i) streams[i] = Storage<S>::Store(h[i]);
  });
}

template <class S, class L>
void CpuOps<S, L>::Router(int rank, const RouterArgs& args) {
  CanonicalMatVec({.form = FormOf(args.gate),
                   .weights = args.gate.bits,
                   .weight_rows = config_.experts,
                   .columns = config_.dim,
                   .x = args.x,
                   .x_stride = config_.dim,
                   .x_rows = args.rows,
                   .y = args.logits,
                   .y_stride = config_.experts},
                  pool_);
  std::vector<float> affinity(static_cast<size_t>(config_.experts));
  for (int row = 0; row < args.rows; ++row) {
    for (int e = 0; e < config_.experts; ++e) {
      affinity[e] = GateAffinity(args.logits[static_cast<int64_t>(row) * config_.experts + e]);
      if (std::isnan(affinity[e])) {
        errors_[rank].Note("router", "a gate logit is not a number");
        affinity[e] = 0.0f;
      }
    }
    args.choices[row] = ChooseExperts(affinity.data(), args.bias, config_.experts,
                                      config_.experts_per_token, config_.route_scale);
  }
}

}  // namespace tp2
