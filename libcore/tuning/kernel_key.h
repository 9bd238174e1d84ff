// What a kernel table is about: launches whose shape may be chosen, and the choices. Plain values
// with one printed form each, which files, flags and messages share.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/tuning/launch_limits.h"

namespace tp2::tuning {

// Products of one width in one launch: `blocks` of 128 outputs over all its matrices, up to `rows`
// rows (RowBucketOf).
struct ProductKey {
  int bits = 0;
  int k = 0;
  int blocks = 0;
  int rows = 0;
  friend auto operator<=>(const ProductKey&, const ProductKey&) = default;
};

// An all-reduce of so many fp32 values.
struct ReduceKey {
  int64_t words = 0;
  friend auto operator<=>(const ReduceKey&, const ReduceKey&) = default;
};

using KernelKey = std::variant<ProductKey, ReduceKey>;

// A launch that a drafter makes, as far as its time depends on it.
struct ProductLaunch {
  std::string what;          // "wq_a + wkv"
  int bits = 0;              // of the matrices below; a launch runs once per width that it has
  int k = 0;                 // inputs of all matrices of the launch
  std::vector<int> outputs;  // of each matrix of this width
  int job_count = 0;         // matrices of the launch, whatever their width
  int max_outputs = 0;       // of any of them
  int rows = 0;              // 1 .. kMaxPassRows
  bool is_insert = false;    // of the context insert

  // Without it there is nothing to choose.
  bool has_room_for_sums() const { return HasRoomForSums(job_count, max_outputs); }
  ProductKey key() const {
    int blocks = 0;
    for (const int count : outputs) blocks += count / kBlockOutputs;
    return {bits, k, blocks, RowBucketOf(rows)};
  }
};

// Parts of K; 1: whole sums in one block.
struct ProductChoice {
  int splits = 1;
  friend auto operator<=>(const ProductChoice&, const ProductChoice&) = default;
};

// Of libcore/collectives; lines first, which need no acknowledgement.
enum class PairProtocol { kLine, kAck };
inline const char* ProtocolText(PairProtocol protocol) {
  return protocol == PairProtocol::kLine ? "line" : "ack";
}

// How both ranks run it. A pair speaks one protocol, so all of a table's are equal.
struct ReduceChoice {
  PairProtocol protocol = PairProtocol::kLine;
  int blocks = 1;
  int threads = 32;
  friend auto operator<=>(const ReduceChoice&, const ReduceChoice&) = default;
};

using Choice = std::variant<ProductChoice, ReduceChoice>;

// "product/K5/k5120/b16/r8", "all_reduce/w25600".
inline std::string KeyName(const KernelKey& key) {
  if (const auto* product = std::get_if<ProductKey>(&key)) {
    return absl::StrCat("product/K", product->bits, "/k", product->k, "/b", product->blocks, "/r",
                        product->rows);
  }
  return absl::StrCat("all_reduce/w", std::get<ReduceKey>(key).words);
}

// "splits=4", "protocol=line blocks=8 threads=256".
inline std::string ChoiceText(const Choice& choice) {
  if (const auto* product = std::get_if<ProductChoice>(&choice)) {
    return absl::StrCat("splits=", product->splits);
  }
  const auto& reduce = std::get<ReduceChoice>(choice);
  return absl::StrCat("protocol=", ProtocolText(reduce.protocol), " blocks=", reduce.blocks,
                      " threads=", reduce.threads);
}

// The smaller configuration wins a tie: fewer parts; fewer threads in all, then smaller blocks,
// then lines.
inline bool IsSmaller(const Choice& a, const Choice& b) {
  if (const auto* product = std::get_if<ProductChoice>(&a)) {
    return product->splits < std::get<ProductChoice>(b).splits;
  }
  const auto& x = std::get<ReduceChoice>(a);
  const auto& y = std::get<ReduceChoice>(b);
  const int64_t all_x = int64_t{x.blocks} * x.threads, all_y = int64_t{y.blocks} * y.threads;
  if (all_x != all_y) return all_x < all_y;
  if (x.threads != y.threads) return x.threads < y.threads;
  return x.protocol < y.protocol;
}

}  // namespace tp2::tuning
