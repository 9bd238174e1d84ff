// Attention of the CPU op set and the grouped output projection behind it.
#pragma once

#include <algorithm>
#include <vector>

#include "libcore/math/reduce.h"
#include "libcore/ops/cpu/cpu_ops.h"
#include "libcore/ops/cpu/cpu_ops_common.h"
#include "libcore/ops/cpu/storage.h"

namespace tp2 {

// Softmax weights of one query row over its keys, in place, and the reciprocal of their sum with
// the sink. The maximum covers the sink too, so that no exponential can overflow.
inline float SinkSoftmax(float* scores, int key_count, float scale, float sink) {
  float largest = sink;
  for (int j = 0; j < key_count; ++j) {
    scores[j] = scores[j] * scale;
    if (scores[j] > largest) largest = scores[j];
  }
  for (int j = 0; j < key_count; ++j) scores[j] = Exp(scores[j] - largest);
  const float sum =
      CanonicalReduce<1>(key_count, [scores](float acc, int j) { return acc + scores[j]; });
  return 1.0f / (sum + Exp(sink - largest));
}

// One request's keys in ascending position, then its block rows, widened: [keys, head_dim].
template <class S>
std::vector<float> GatherKeys(const DrafterConfig& config, const WindowRows& window, const S* rings,
                              const S* block_kv) {
  const int dims = config.head_dim;
  const int64_t ring_rows = config.ring_rows();
  std::vector<float> keys;
  keys.reserve(static_cast<size_t>(window.row_count + kBlockRows) * dims);
  for (int j = 0; j < window.row_count + kBlockRows; ++j) {
    const S* row = j < window.row_count
                       ? rings + (window.slot * ring_rows + (window.begin + j) % ring_rows) * dims
                       : block_kv + static_cast<int64_t>(j - window.row_count) * dims;
    for (int i = 0; i < dims; ++i) keys.push_back(Storage<S>::Load(row[i]));
  }
  return keys;
}

template <class S, class L>
void CpuOps<S, L>::Attention(int rank, const AttentionArgs<S>& args) {
  const int dims = config_.head_dim;
  const int plain = dims - config_.rope_dims;
  const int query_count = kBlockRows * args.heads;
  const int64_t request_values = static_cast<int64_t>(query_count) * dims;
  for (int request = 0; request < args.requests; ++request) {
    const S* block_kv = args.block_kv + static_cast<int64_t>(request) * kBlockRows * dims;
    const std::vector<float> keys =
        GatherKeys(config_, args.windows[request], args.rings, block_kv);
    const int key_count = args.windows[request].row_count + kBlockRows;
    std::vector<float> scores(static_cast<size_t>(query_count) * key_count);
    CanonicalMatVec({.form = RowForm::kF32Wide,
                     .weights = keys.data(),
                     .weight_rows = key_count,
                     .columns = dims,
                     .x = args.q + request * request_values,
                     .x_stride = dims,
                     .x_rows = query_count,
                     .y = scores.data(),
                     .y_stride = key_count},
                    pool_);
    pool_.ParallelFor(query_count, [&](int64_t query) {
      const int row = request * kBlockRows + static_cast<int>(query) / args.heads;
      const int head = static_cast<int>(query) % args.heads;
      float* weights = scores.data() + query * key_count;
      const float inverse = SinkSoftmax(weights, key_count, score_scale_, args.sink[head]);
      float* o = args.o + request * request_values + query * dims;
      WeightedSum({.weights = weights,
                   .rows = keys.data(),
                   .row_count = key_count,
                   .columns = dims,
                   .out = o});
      for (int i = 0; i < dims; ++i) o[i] = o[i] * inverse;
      std::vector<CosSin> table(frequencies_.size());
      RopeTableRow(args.positions[row], frequencies_.data(), static_cast<int>(table.size()),
                   table.data());
      for (size_t i = 0; i < table.size(); ++i) {
        RopePairInverse(table[i], o[plain + 2 * i], o[plain + 2 * i + 1]);
      }
    });
  }
}

template <class S, class L>
void CpuOps<S, L>::GroupedOutput(int rank, const GroupedOutputArgs& args) {
  const int inputs = config_.group_inputs();
  const int outputs = config_.o_lora_rank;
  const OutputProjection& wo_a = *args.wo_a;
  for (int group = 0; group < args.groups; ++group) {
    const float* o = args.o + static_cast<int64_t>(group) * inputs;
    float* z = args.z + static_cast<int64_t>(group) * outputs;
    const int64_t x_stride = static_cast<int64_t>(args.groups) * inputs;
    const int64_t y_stride = static_cast<int64_t>(args.groups) * outputs;
    if (wo_a.fp8 == nullptr) {
      const exl3::LinearArgs product = {.matrix = wo_a.slices[group],
                                        .x = o,
                                        .x_stride = x_stride,
                                        .rows = args.rows,
                                        .y = z,
                                        .y_stride = y_stride};
      linear_.Run({&product, 1}, pool_);
      continue;
    }
    const int64_t first_row = static_cast<int64_t>(group) * outputs;
    CanonicalMatVec(
        {.form = RowForm::kFp8,
         .weights = wo_a.fp8 + first_row * inputs,
         .fp8_scale = wo_a.fp8_scale + first_row / wo_a.fp8_block * (inputs / wo_a.fp8_block),
         .fp8_block = wo_a.fp8_block,
         .weight_rows = outputs,
         .columns = inputs,
         .x = o,
         .x_stride = x_stride,
         .x_rows = args.rows,
         .y = z,
         .y_stride = y_stride},
        pool_);
  }
}

}  // namespace tp2
