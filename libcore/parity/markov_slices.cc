#include "libcore/parity/markov_slices.h"

#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "libcore/ops/cpu/cpu_ops.h"

namespace tp2 {
namespace {

constexpr int kSampledTokens = 64;

std::set<int32_t> TokensToCompare(const DrafterConfig& config,
                                  const std::vector<RankShard>& ranks) {
  std::set<int32_t> tokens = {0, config.vocab - 1, config.noise_token};
  for (const RankShard& rank : ranks) {
    const Span vocab = rank.plan.vocab;
    tokens.insert({vocab.begin, vocab.end - 1});
  }
  for (int i = 0; i < kSampledTokens; ++i) {
    tokens.insert(static_cast<int32_t>(int64_t{config.vocab} * i / kSampledTokens));
  }
  return tokens;
}

std::vector<float> BiasRow(CpuOps<Bf16>& ops, const DrafterWeights& whole, const Half16View& head,
                           int vocab_begin, int32_t token) {
  const std::vector<float> base(static_cast<size_t>(head.rows));
  std::vector<float> bias(base.size());
  TopTwo best;
  ops.Markov(0, {.base = base.data(),
                 .base_stride = head.rows,
                 .previous = &token,
                 .embed = whole.markov_embed,
                 .head = head,
                 .vocab_begin = vocab_begin,
                 .requests = 1,
                 .best = &best,
                 .bias = bias.data()});
  return bias;
}

}  // namespace

MarkovCheck CheckMarkovSlices(const DrafterConfig& config, const DrafterWeights& whole,
                              const std::vector<RankShard>& ranks, int thread_count) {
  CpuOps<Bf16> ops(config, 1, thread_count);
  MarkovCheck check;
  for (const int32_t token : TokensToCompare(config, ranks)) {
    const std::vector<float> unsplit = BiasRow(ops, whole, whole.markov_head, 0, token);
    for (const RankShard& rank : ranks) {
      const int begin = rank.plan.vocab.begin;
      const std::vector<float> part = BiasRow(ops, whole, rank.weights.markov_head, begin, token);
      if (std::memcmp(part.data(), unsplit.data() + begin, 4 * part.size()) != 0) {
        check.differences.push_back(
            absl::StrCat("Markov bias row of token ", token, ", rank ", rank.plan.rank));
      }
    }
    ++check.tokens;
  }
  return check;
}

}  // namespace tp2
