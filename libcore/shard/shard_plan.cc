#include "libcore/shard/shard_plan.h"

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2 {
namespace {

// Rank `rank`'s part of `extent` in `tp` equal parts, each a multiple of `unit`.
absl::StatusOr<Span> EvenCut(const char* what, int extent, int unit, int tp, int rank) {
  if (extent % (tp * unit) != 0) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = absl::StrCat("shard plan: ", what),
                      .expected = absl::StrCat("a multiple of ", tp * unit),
                      .got = absl::StrCat(extent),
                      .where = absl::StrCat("tp ", tp),
                      .next = "this model cannot be cut that way"});
  }
  const int part = extent / tp;
  return Span{part * rank, part * (rank + 1)};
}

// Whole tiles, the larger parts first; the last rank takes the ragged end of the vocabulary.
Span VocabularyCut(int vocab, int tp, int rank) {
  const int tiles = (vocab + kVocabTile - 1) / kVocabTile;
  const int base = tiles / tp;
  const int extra = tiles % tp;
  const auto begin_tile = [&](int r) { return base * r + (r < extra ? r : extra); };
  const int end = begin_tile(rank + 1) * kVocabTile;
  return {begin_tile(rank) * kVocabTile, end < vocab ? end : vocab};
}

}  // namespace

absl::StatusOr<ShardPlan> MakeShardPlan(const DrafterConfig& config, int tp, int rank) {
  if (tp < 1 || tp > kHalves || rank < 0 || rank >= tp) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = "shard plan",
                      .expected = "tp 1 or 2 and a rank below it",
                      .got = absl::StrCat("tp ", tp, ", rank ", rank),
                      .where = "",
                      .next = ""});
  }
  ShardPlan plan;
  plan.tp = tp;
  plan.rank = rank;
  TP2_ASSIGN_OR_RETURN(plan.groups, EvenCut("output groups", config.o_groups, 1, tp, rank));
  const int heads_per_group = config.heads / config.o_groups;
  plan.heads = {plan.groups.begin * heads_per_group, plan.groups.end * heads_per_group};
  // Checked whatever tp is: the halves are part of the numerics, not of the split.
  TP2_ASSIGN_OR_RETURN(
      Span unused, EvenCut("output values", config.output_values(), kHadamardBlock, kHalves, 0));
  (void)unused;
  TP2_ASSIGN_OR_RETURN(
      unused, EvenCut("intermediate channels", config.moe_inter, kHadamardBlock, kHalves, 0));
  TP2_ASSIGN_OR_RETURN(
      plan.channels, EvenCut("intermediate channels", config.moe_inter, kHadamardBlock, tp, rank));
  TP2_ASSIGN_OR_RETURN(Span query,
                       EvenCut("query values", config.query_values(), kHadamardBlock, tp, rank));
  if (query.begin != plan.heads.begin * config.head_dim) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = "shard plan: heads",
                      .expected = "equal heads in every group",
                      .got = absl::StrCat(config.heads, " heads in ", config.o_groups, " groups"),
                      .where = "",
                      .next = "this model cannot be cut that way"});
  }
  plan.vocab = VocabularyCut(config.vocab, tp, rank);
  plan.halves = {kHalves / tp * rank, kHalves / tp * (rank + 1)};
  plan.has_confidence = rank == 0;
  return plan;
}

}  // namespace tp2
