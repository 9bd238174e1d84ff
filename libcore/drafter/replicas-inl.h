// Body of the controller: the state that all ranks hold, for audits.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/drafter/drafter.h"

namespace tp2 {

// What the ranks compute each for itself from equal inputs and must agree on: previous tokens, the
// windows' rings, streams and the sums behind them.
template <OpSet O>
template <class Fn>
void Drafter<O>::ForEachReplica(RankType& rank, Fn&& fn) {
  const auto show = [&fn](const std::string& name, auto* values, size_t count) {
    fn(name, static_cast<int>(sizeof(*values)),
       std::span(reinterpret_cast<std::byte*>(values), count * sizeof(*values)));
  };
  auto& tokens = rank.step.head().result.tokens;
  show("tokens", tokens.data(), tokens.size());
  for (size_t stage = 0; stage < rank.rings.size(); ++stage) {
    show(absl::StrCat("ring ", stage), rank.rings[stage].data(), rank.rings[stage].size());
  }
  show("streams", rank.streams.data(), rank.streams.size());
  show("y", rank.y.data(), rank.y.size());
  show("block_kv", rank.block_kv.data(), rank.block_kv.size());
}

template <OpSet O>
absl::StatusOr<std::vector<ReplicatedTensor>> Drafter<O>::ReadReplicas() {
  std::vector<ReplicatedTensor> replicas;
  ForEachRank([&](RankType& rank) {
    size_t index = 0;
    ForEachReplica(
        rank, [&](const std::string& name, int element_bytes, std::span<std::byte> values) {
          if (index == replicas.size()) replicas.push_back({name, element_bytes, {}});
          std::vector<std::byte>& copy = replicas[index++].by_rank.emplace_back(values.size());
          ops_->Download(rank.index, values.data(), std::span(copy));
        });
  });
  TP2_RETURN_IF_ERROR(TakeErrors());
  return replicas;
}

template <OpSet O>
absl::Status Drafter<O>::FlipReplicaBit(const std::string& name, int64_t bit) {
  RankType& rank = *ranks_.back();
  absl::Status status = MakeError(absl::StatusCode::kNotFound,
                                  {.what = "replicated tensor",
                                   .expected = "tokens, ring 0, ..., streams, y, block_kv",
                                   .got = name});
  ForEachReplica(rank, [&](const std::string& found, int, std::span<std::byte> values) {
    if (found != name) return;
    const auto byte = static_cast<size_t>(bit / 8);
    if (bit < 0 || byte >= values.size()) {
      status = MakeError(absl::StatusCode::kOutOfRange,
                         {.what = absl::StrCat("bit of ", name),
                          .expected = absl::StrCat("0 to ", values.size() * 8 - 1),
                          .got = absl::StrCat(bit)});
      return;
    }
    std::byte value{};
    ops_->Download(rank.index, values.data() + byte, std::span(&value, 1));
    value ^= std::byte{1} << (bit % 8);
    ops_->Upload(rank.index, std::span<const std::byte>(&value, 1), values.data() + byte);
    ops_->Wait(rank.index);
    status = TakeErrors();
  });
  return status;
}

}  // namespace tp2
