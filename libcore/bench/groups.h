// The groups into which the specification divides the draft step's kernel time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tp2::bench {

enum class KernelGroup : uint8_t {
  kExperts,      // routed and shared experts: one operation computes both
  kHead,         // the vocabulary head
  kDense,        // wq_a, wq_b, wkv, wo_b
  kMarkov,       // Markov bias, best two
  kWoA,          // grouped output projection
  kMhc,          // hyper-connections: mixes, collapse, update
  kAttention,    // block attention over window and block, rotation of its queries
  kNorms,        // norms and KV finish that no other operation does
  kRouting,      // router logits and choice, rows grouped by expert
  kCollectives,  // sums and best tokens of the ranks, the closing exchange
  kOther,        // embedding, confidence, results
};
inline constexpr int kGroupCount = 11;

// One value per group, in the enum's order.
template <class T>
using PerGroup = std::array<T, kGroupCount>;

// Short names of table columns and JSON keys.
inline constexpr PerGroup<const char*> kGroupNames = {
    "experts",   "head",  "dense",   "markov",      "wo_a", "mhc",
    "attention", "norms", "routing", "collectives", "other"};

template <class T>
T& At(PerGroup<T>& values, KernelGroup group) {
  return values[static_cast<size_t>(group)];
}

}  // namespace tp2::bench
