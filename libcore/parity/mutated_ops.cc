#include "libcore/parity/mutated_ops.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "libcore/ops/cpu/attention_ops-inl.h"
#include "libcore/ops/cpu/cpu_ops_common.h"
#include "libcore/ops/cpu/expert_ops-inl.h"

namespace tp2 {

MutatedOps::MutatedOps(const DrafterConfig& config, int thread_count, Mutation mutation)
    : Base(config, 1, thread_count), config_(config), mutation_(mutation), pool_(thread_count) {}

void MutatedOps::Linear(int rank, std::span<const LinearOpArgs> products) {
  for (const LinearOpArgs& product : products) Multiply(rank, product);
}

void MutatedOps::Multiply(int rank, const LinearOpArgs& args) {
  const exl3::MatrixView& matrix = *args.matrix;
  LinearOpArgs changed = args;
  exl3::MatrixView other = matrix;
  std::vector<float> x;
  if (Is(Mutation::kWrongCodebook)) {
    other.codebook =
        matrix.codebook == exl3::Codebook::kMul1 ? exl3::Codebook::kMcg : exl3::Codebook::kMul1;
    changed.matrix = &other;
  }
  if (Is(Mutation::kReversedTaps) && matrix.k == config_.tap_values() && matrix.n == config_.dim) {
    const int taps = config_.tap_count(), dim = config_.dim;
    for (int row = 0; row < args.rows; ++row) {
      for (int tap = taps - 1; tap >= 0; --tap) {
        const float* from = args.x + row * args.x_stride + int64_t{tap} * dim;
        x.insert(x.end(), from, from + dim);
      }
    }
    changed.x = x.data();
  }
  // The two halves of wo_b come one after the other.
  if (Is(Mutation::kSwappedHalves) && matrix.k == config_.output_values() / kHalves &&
      matrix.n == config_.dim) {
    changed.x = is_second_half_ ? args.x - matrix.k : args.x + matrix.k;
    is_second_half_ = !is_second_half_;
  }
  Base::Linear(rank, {&changed, 1});
}

void MutatedOps::RmsNorm(int rank, const RmsNormArgs& args) {
  Base::RmsNorm(rank, args);
  if (args.x != args.y) hidden_ = args.y;  // the head's is the last of those that keep their input
}

std::vector<int64_t> MutatedOps::Shifted(const int64_t* positions, int rows) const {
  std::vector<int64_t> shifted;
  for (int row = 0; row < rows; ++row) shifted.push_back(positions[row] - 1);
  return shifted;
}

void MutatedOps::KvFinish(int rank, const KvFinishArgs<Bf16>& args) {
  if (!Is(Mutation::kBlockPosition) || args.positions != block_positions_) {
    return Base::KvFinish(rank, args);
  }
  const std::vector<int64_t> positions = Shifted(args.positions, args.rows);
  KvFinishArgs<Bf16> changed = args;
  changed.positions = positions.data();
  Base::KvFinish(rank, changed);
}

void MutatedOps::NormalizeHeads(const QueryFinishArgs& args) const {
  const int dims = config_.head_dim;
  for (int64_t i = 0; i < int64_t{args.rows} * args.heads; ++i) {
    float* q = args.q + i * dims;
    const float inverse = InverseRms(q, dims, config_.norm_eps);
    for (int d = 0; d < dims; ++d) q[d] = q[d] * inverse;
  }
}

void MutatedOps::QueryFinish(int rank, const QueryFinishArgs& args) {
  block_positions_ = args.positions;
  if (Is(Mutation::kQueryNorm)) NormalizeHeads(args);
  if (!Is(Mutation::kBlockPosition)) return Base::QueryFinish(rank, args);
  const std::vector<int64_t> positions = Shifted(args.positions, args.rows);
  QueryFinishArgs changed = args;
  changed.positions = positions.data();
  Base::QueryFinish(rank, changed);
}

void MutatedOps::Embed(int rank, const EmbedArgs<Bf16>& args) {
  std::vector<int32_t> ids(args.ids, args.ids + args.rows);
  if (Is(Mutation::kNoiseZero)) {
    std::replace(ids.begin(), ids.end(), config_.noise_token, 0);
  }
  EmbedArgs<Bf16> changed = args;
  changed.ids = ids.data();
  Base::Embed(rank, changed);
}

void MutatedOps::Mix(int rank, const MixArgs<Bf16>& args) {
  Base::Mix(rank, args);
  latest_mix_ = args.mix;
}

void MutatedOps::Collapse(int rank, const CollapseArgs<Bf16>& args) {
  const bool is_in_front_of_the_head = args.pick.of != 1;
  CollapseArgs<Bf16> changed = args;
  if (Is(Mutation::kOwnPreMix) && !is_in_front_of_the_head) {
    changed.weights = latest_mix_->pre;
    changed.weight_stride = sizeof(MixCoefficients) / sizeof(float);
  }
  Base::Collapse(rank, changed);
}

void MutatedOps::Update(int rank, const UpdateArgs<Bf16>& args) {
  std::vector<MixCoefficients> mix(args.mix, args.mix + args.rows);
  if (Is(Mutation::kTransposedMix)) {
    for (MixCoefficients& row : mix) {
      for (int i = 0; i < kStreams; ++i) {
        for (int j = 0; j < i; ++j) std::swap(row.comb[i][j], row.comb[j][i]);
      }
    }
  }
  UpdateArgs<Bf16> changed = args;
  changed.mix = mix.data();
  Base::Update(rank, changed);
}

void MutatedOps::Attention(int rank, const AttentionArgs<Bf16>& args) {
  if (Is(Mutation::kCausalBlock) || Is(Mutation::kZeroRows)) return PlainAttention(args);
  std::vector<float> sink(args.sink, args.sink + args.heads);
  std::vector<int64_t> positions(args.positions, args.positions + args.requests * kBlockRows);
  if (Is(Mutation::kScaledSink)) {
    for (float& value : sink) value /= std::sqrt(static_cast<float>(config_.head_dim));
  }
  if (Is(Mutation::kBlockPosition)) {
    positions = Shifted(args.positions, args.requests * kBlockRows);
  }
  AttentionArgs<Bf16> changed = args;
  changed.sink = sink.data();
  changed.positions = positions.data();
  Base::Attention(rank, changed);
}

// One query row: its output before the inverse rotation is undone, with the fault.
void MutatedOps::AttendRow(const AttentionArgs<Bf16>& args, const std::vector<float>& keys,
                           int key_count, int row, int head) {
  const int dims = config_.head_dim, plain = dims - config_.rope_dims;
  const int64_t at = (int64_t{row} * args.heads + head) * dims;
  const float* q = args.q + at;
  float* o = args.o + at;
  const int hidden = Is(Mutation::kCausalBlock) ? kBlockRows - 1 - row % kBlockRows : 0;
  // A masked row read as zeros has score 0 and adds to the denominator.
  const int zeros = Is(Mutation::kZeroRows) ? config_.window + kBlockRows - key_count : 0;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dims));
  std::vector<double> scores;
  double largest = args.sink[head];
  for (int j = 0; j < key_count - hidden; ++j) {
    double dot = 0;
    for (int d = 0; d < dims; ++d) dot += double{q[d]} * keys[static_cast<size_t>(j) * dims + d];
    scores.push_back(dot * scale);
    largest = std::max(largest, scores.back());
  }
  if (zeros > 0) largest = std::max(largest, 0.0);
  double sum = std::exp(args.sink[head] - largest) + zeros * std::exp(-largest);
  std::vector<double> out(static_cast<size_t>(dims));
  for (size_t j = 0; j < scores.size(); ++j) {
    const double weight = std::exp(scores[j] - largest);
    sum += weight;
    for (int d = 0; d < dims; ++d) out[d] += weight * keys[j * dims + d];
  }
  for (int d = 0; d < dims; ++d) o[d] = static_cast<float>(out[d] / sum);
  for (int pair = 0; pair < config_.rope_dims / 2; ++pair) {
    const float frequency = RopeFrequency(config_.rope_theta, config_.rope_dims, pair);
    CosSin turn;
    RopeTableRow(args.positions[row], &frequency, 1, &turn);
    RopePairInverse(turn, o[plain + 2 * pair], o[plain + 2 * pair + 1]);
  }
}

void MutatedOps::PlainAttention(const AttentionArgs<Bf16>& args) {
  for (int request = 0; request < args.requests; ++request) {
    const Bf16* block_kv = args.block_kv + int64_t{request} * kBlockRows * config_.head_dim;
    const WindowRows& window = args.windows[request];
    const std::vector<float> keys = GatherKeys(config_, window, args.rings, block_kv);
    for (int row = request * kBlockRows; row < (request + 1) * kBlockRows; ++row) {
      for (int head = 0; head < args.heads; ++head) {
        AttendRow(args, keys, window.row_count + kBlockRows, row, head);
      }
    }
  }
}

void MutatedOps::Router(int rank, const RouterArgs& args) {
  Base::Router(rank, args);
  if (!Is(Mutation::kRoutingBias)) return;
  for (int row = 0; row < args.rows; ++row) {
    GateChoice& choice = args.choices[row];
    float sum = 0;
    for (int i = 0; i < config_.experts_per_token; ++i) {
      const int expert = choice.experts[i];
      choice.weights[i] =
          GateAffinity(args.logits[int64_t{row} * config_.experts + expert]) + args.bias[expert];
      sum += choice.weights[i];
    }
    for (int i = 0; i < config_.experts_per_token; ++i) {
      choice.weights[i] = choice.weights[i] / sum * config_.route_scale;
    }
  }
}

void MutatedOps::Experts(int rank, const ExpertsArgs& args) {
  if (Is(Mutation::kGateClamp) || Is(Mutation::kNoSharedExpert)) return PlainExperts(args);
  Base::Experts(rank, args);
}

void MutatedOps::PlainExperts(const ExpertsArgs& args) {
  const int dim = config_.dim;
  const float limit = config_.swiglu_limit;
  std::vector<ExpertJob> jobs = GroupByExpert(args, config_.experts_per_token);
  if (Is(Mutation::kNoSharedExpert)) jobs.pop_back();
  const IntegerLinear linear;
  linear.Run(UpProducts(jobs, args.x, dim), pool_);
  for (ExpertJob& job : jobs) {
    const size_t channels = static_cast<size_t>(job.expert->w1.n);
    for (size_t i = 0; i < job.gate.size(); ++i) {
      float gate = job.gate[i];
      if (Is(Mutation::kGateClamp)) gate = std::max(gate, -limit);
      job.gate[i] = SwiGlu(gate, job.up[i], limit) * job.weights[i / channels];
    }
  }
  linear.Run(DownProducts(jobs, dim), pool_);
  for (int half = 0; half < kHalves; ++half) {
    float* sums = args.partials + half * args.half_stride;
    std::fill_n(sums, int64_t{args.rows} * dim, 0.0f);
    for (const ExpertJob& job : jobs) {
      for (size_t i = 0; i < job.rows.size(); ++i) {
        float* sum = sums + int64_t{job.rows[i]} * dim;
        for (int c = 0; c < dim; ++c) sum[c] += job.partials[half][i * dim + c];
      }
    }
  }
}

void MutatedOps::Confidence(int rank, const ConfidenceArgs& args) {
  ConfidenceArgs changed = args;
  if (Is(Mutation::kPostNormConfidence)) changed.xc = hidden_;
  Base::Confidence(rank, changed);
}

}  // namespace tp2
