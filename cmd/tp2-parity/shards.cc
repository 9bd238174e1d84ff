#include "cmd/tp2-parity/shards.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/status_macros.h"
#include "libcore/base/thread_pool.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/parity/markov_slices.h"
#include "libcore/report/output.h"
#include "libcore/report/progress.h"
#include "libcore/shard/layout.h"
#include "libcore/shard/shard_check.h"

namespace tp2::parity {
namespace {

constexpr size_t kShownDifferences = 20;

std::string Text(const ShardCheck& check, const MarkovCheck& markov, int tp) {
  std::string text = absl::StrFormat(
      "matrices  %8d  decode(slice) == slice(decode), %d weights, tp %d\n"
      "tensors   %8d  FP8 bytes and scales, sinks, Markov head, norms: %d bytes\n"
      "bias rows %8d  Markov rows of the ranks == the unsplit rows\n",
      check.matrices, check.weights, tp, check.plain_tensors, check.bytes, markov.tokens);
  std::vector<std::string> differences = check.differences;
  differences.insert(differences.end(), markov.differences.begin(), markov.differences.end());
  for (size_t i = 0; i < std::min(differences.size(), kShownDifferences); ++i) {
    absl::StrAppend(&text, "differs   ", differences[i], "\n");
  }
  if (differences.size() > kShownDifferences) {
    absl::StrAppend(&text, "and ", differences.size() - kShownDifferences, " more\n");
  }
  return absl::StrCat(text, differences.empty() ? "equal" : "differ", "\n");
}

}  // namespace

absl::StatusOr<bool> ShardsAreEqual(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(flags.model_dir));
  const DrafterConfig& config = checkpoint->config();
  TP2_ASSIGN_OR_RETURN(const std::vector<ShardPlan> plans, MakePlans(config, flags.tp));
  std::vector<RankShard> ranks;
  for (const ShardPlan& plan : plans) {
    ranks.push_back({plan, CutWeights(config, checkpoint->weights(), plan)});
  }
  ThreadPool pool(flags.threads);
  Progress progress("shards");
  const ShardCheck check =
      CheckShards(config, checkpoint->weights(), ranks, pool,
                  [&progress](int64_t done, int64_t total) { progress.Update(done, total); });
  const MarkovCheck markov = CheckMarkovSlices(config, checkpoint->weights(), ranks, flags.threads);
  TP2_RETURN_IF_ERROR(PrintResult(Text(check, markov, flags.tp)));
  return check.differences.empty() && markov.differences.empty();
}

}  // namespace tp2::parity
