// Body of the controller: showing intermediate tensors to an observer, under the golden files'
// names.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/drafter/drafter.h"
#include "libcore/math/bf16.h"

namespace tp2 {

inline float Widened(float value) { return value; }
inline float Widened(Bf16 value) { return ToFloat(value); }

inline std::string TensorName(const char* name, int stage) {
  return stage < 0 ? name : absl::StrCat("s", stage, ".", name);
}

template <OpSet O>
template <class T>
void Drafter<O>::Observe(const RankType& rank, const char* name, int stage, const T* values,
                         std::vector<int64_t> shape) {
  if (observer_ == nullptr || rank.index != 0) return;
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<T> host(static_cast<size_t>(count));
  ops_->Download(rank.index, values, std::span<T>(host));
  std::vector<float> wide(host.size());
  std::transform(host.begin(), host.end(), wide.begin(), [](T value) { return Widened(value); });
  observer_->OnTensor(TensorName(name, stage), std::move(shape), wide);
}

template <OpSet O>
void Drafter<O>::ObserveMix(const RankType& rank, const char* sublayer, int stage,
                            const MixCoefficients* mix, int rows) {
  if (observer_ == nullptr || rank.index != 0) return;
  std::vector<MixCoefficients> host(static_cast<size_t>(rows));
  ops_->Download(rank.index, mix, std::span(host));
  std::vector<float> pre, post, comb;
  for (const MixCoefficients& row : host) {
    pre.insert(pre.end(), row.pre, row.pre + kStreams);
    post.insert(post.end(), row.post, row.post + kStreams);
    comb.insert(comb.end(), &row.comb[0][0], &row.comb[0][0] + kStreams * kStreams);
  }
  const std::string prefix = TensorName(sublayer, stage);
  observer_->OnTensor(prefix + "_pre", {rows, kStreams}, pre);
  observer_->OnTensor(prefix + "_post", {rows, kStreams}, post);
  observer_->OnTensor(prefix + "_comb", {rows, kStreams, kStreams}, comb);
}

template <OpSet O>
void Drafter<O>::ObserveRing(const RankType& rank, int stage, int requests) {
  if (observer_ == nullptr || rank.index != 0) return;
  std::vector<WindowRows> windows(static_cast<size_t>(requests));
  ops_->Download(rank.index, rank.step.head().windows.data(), std::span(windows));
  const int64_t ring_rows = config_.ring_rows();
  std::vector<float> values;
  for (const WindowRows& window : windows) {
    for (int64_t position = window.begin; position < window.begin + window.row_count; ++position) {
      std::vector<S> row(static_cast<size_t>(config_.head_dim));
      const int64_t at = window.slot * ring_rows + position % ring_rows;
      ops_->Download(rank.index, rank.rings[stage].data() + at * config_.head_dim, std::span(row));
      for (const S value : row) values.push_back(Widened(value));
    }
  }
  const int64_t rows = static_cast<int64_t>(values.size()) / config_.head_dim;
  observer_->OnTensor(TensorName("ring", stage), {rows, config_.head_dim}, values);
}

template <OpSet O>
void Drafter<O>::ObserveRouting(const RankType& rank, int stage, int rows) {
  if (observer_ == nullptr || rank.index != 0) return;
  Observe(rank, "router_logits", stage, rank.router_logits.data(), {rows, config_.experts});
  std::vector<GateChoice> choices(static_cast<size_t>(rows));
  ops_->Download(rank.index, rank.choices.data(), std::span(choices));
  std::vector<float> ids, weights;
  const int top_k = config_.experts_per_token;
  for (const GateChoice& choice : choices) {
    ids.insert(ids.end(), choice.experts, choice.experts + top_k);
    weights.insert(weights.end(), choice.weights, choice.weights + top_k);
  }
  observer_->OnTensor(TensorName("route_ids", stage), {rows, top_k}, ids);
  observer_->OnTensor(TensorName("route_weights", stage), {rows, top_k}, weights);
}

// The best two biased logits of position `position`, rank 0's vocabulary only.
template <OpSet O>
void Drafter<O>::ObserveBest(const RankType& rank, int position, int requests) {
  if (observer_ == nullptr || rank.index != 0) return;
  std::vector<TopTwo> best(static_cast<size_t>(requests));
  ops_->Download(rank.index, rank.best.data(), std::span(best));
  std::vector<float> ids, values;
  for (const TopTwo& two : best) {
    ids.insert(ids.end(),
               {static_cast<float>(two.first.token), static_cast<float>(two.second.token)});
    values.insert(values.end(), {two.first.score, two.second.score});
  }
  observer_->OnTensor(absl::StrCat("top2_ids.", position), {requests, 2}, ids);
  observer_->OnTensor(absl::StrCat("top2_values.", position), {requests, 2}, values);
}

}  // namespace tp2
