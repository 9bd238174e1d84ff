// Behind the head: Markov bias, the argmax over the vocabulary, its exchange between ranks,
// confidence.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "libcore/math/argmax.h"
#include "libcore/ops/cpu/cpu_ops.h"
#include "libcore/ops/cpu/cpu_ops_common.h"
#include "libcore/ops/cpu/storage.h"

namespace tp2 {

template <class S, class L>
void CpuOps<S, L>::Markov(int rank, const MarkovArgs& args) {
  const int rank_values = args.embed.columns;
  std::vector<float> embedded;
  for (int request = 0; request < args.requests; ++request) {
    const std::vector<float> row =
        WidenRow(args.embed, args.previous[request * args.previous_stride]);
    embedded.insert(embedded.end(), row.begin(), row.end());
  }
  const int vocab = args.head.rows;
  std::vector<float> bias(static_cast<size_t>(args.requests) * vocab);
  CanonicalMatVec({.form = FormOf(args.head),
                   .weights = args.head.bits,
                   .weight_rows = vocab,
                   .columns = rank_values,
                   .x = embedded.data(),
                   .x_stride = rank_values,
                   .x_rows = args.requests,
                   .y = bias.data(),
                   .y_stride = vocab},
                  pool_);
  for (int request = 0; request < args.requests; ++request) {
    const float* base = args.base + request * args.base_stride;
    const float* term = bias.data() + static_cast<int64_t>(request) * vocab;
    if (args.bias != nullptr) {
      std::copy_n(term, vocab, args.bias + static_cast<int64_t>(request) * vocab);
    }
    TopTwo best = {kNoScore, kNoScore};
    for (int v = 0; v < vocab; ++v) {
      // BITS: the bias is rounded as a cached row would be, so that hits and misses of the cache
      // agree.
      const float score = base[v] + Rounded<S>(term[v]);
      if (std::isnan(score)) {
        errors_[rank].Note("markov", "a logit is not a number");
        continue;
      }
      Take(best, {score, args.vocab_begin + v});
    }
    args.best[request] = best;
  }
  if (args.choice.token != nullptr) Exchange({&args.choice, 1});
}

template <class S, class L>
void CpuOps<S, L>::Exchange(std::span<const ExchangeArgs> ranks) {
  for (int request = 0; request < ranks[0].requests; ++request) {
    TopTwo best = ranks[0].best[request];
    for (size_t rank = 1; rank < ranks.size(); ++rank)
      best = Merge(best, ranks[rank].best[request]);
    // Only after a logit that was not a number, which the latch has noted: keep later look-ups in
    // range.
    if (best.first.token == kNoScore.token) best = {{0.0f, 0}, {0.0f, 0}};
    for (const ExchangeArgs& rank : ranks) {
      rank.token[request * rank.token_stride] = best.first.token;
      if (rank.margin == nullptr) continue;
      rank.runner_up[request * rank.result_stride] = best.second.token;
      rank.margin[request * rank.result_stride] = best.first.score - best.second.score;
    }
  }
}

template <class S, class L>
void CpuOps<S, L>::Confidence(int rank, const ConfidenceArgs& args) {
  const int dim = config_.dim;
  const int columns = args.weight.columns;
  for (int request = 0; request < args.requests; ++request) {
    std::vector<float> x;
    for (int i = 0; i < args.n_out; ++i) {
      const float* xc = args.xc + static_cast<int64_t>(request * args.n_out + i) * dim;
      x.insert(x.end(), xc, xc + dim);
      const std::vector<float> embedded =
          WidenRow(args.embed, args.fed[request * args.fed_stride + i]);
      x.insert(x.end(), embedded.begin(), embedded.end());
    }
    CanonicalMatVec({.form = FormOf(args.weight),
                     .weights = args.weight.bits,
                     .weight_rows = 1,
                     .columns = columns,
                     .x = x.data(),
                     .x_stride = columns,
                     .x_rows = args.n_out,
                     .y = args.logits + request * kBlockRows,
                     .y_stride = 1},
                    pool_);
  }
}

}  // namespace tp2
