#include "libcore/tuning/candidates.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "libcore/tuning/launch_limits.h"

namespace tp2::tuning {
namespace {

// A launch of more blocks than this many waves at two blocks a multiprocessor has no idle
// multiprocessors left to win back.
constexpr int kMostWaves = 4;
// As in kMostWaves.
constexpr int kBlocksPerMultiprocessor = 2;

// In 128-blocks: where a part ends, parts of a split being as equal as whole blocks allow.
int LongestPart(int k, int splits) {
  const int blocks = k / kBlockOutputs;
  return (blocks + splits - 1) / splits;
}

std::string AndMore(int splits) { return absl::StrCat("splits=", splits, " and more"); }

int64_t ItemsOf(int64_t words, PairProtocol protocol) {
  const int item_words = ItemWordsOf(protocol);
  return (words + item_words - 1) / item_words;
}

void AddReduce(const ReduceChoice& choice, int64_t items, int resident_blocks,
               CandidateList& list) {
  const int most = MostReduceBlocks(resident_blocks, choice.threads);
  const auto prune = [&](const std::string& reason) {
    list.pruned.push_back({ChoiceText(choice), reason});
  };
  if (choice.blocks > most) {
    return prune(absl::StrCat("more blocks than are resident at once, ", most));
  }
  if (choice.blocks == 1 && choice.threads > kSafeReduceThreads && items <= choice.threads / 2) {
    return prune("half of the threads have nothing to do");
  }
  list.choices.push_back(choice);
}

}  // namespace

int ItemWordsOf(PairProtocol protocol) { return protocol == PairProtocol::kLine ? 3 : 4; }

Choice SafeChoice(const ProductLaunch& launch, int multiprocessors) {
  if (!launch.has_room_for_sums()) return ProductChoice{LeastSplits(launch.k)};
  return ProductChoice{SafeSplits(launch.k, launch.key().blocks, multiprocessors)};
}

Choice SafeChoice(const ReduceKey& key, int resident_blocks, int multiprocessors) {
  const ReduceShape shape =
      SafeReduceShape(ItemsOf(key.words, PairProtocol::kLine), resident_blocks, multiprocessors);
  return ReduceChoice{PairProtocol::kLine, shape.blocks, shape.threads};
}

CandidateList ProductCandidates(const ProductLaunch& launch, int multiprocessors) {
  CandidateList list;
  const int least = LeastSplits(launch.k), most = MostSplits(launch.k);
  const int safe = std::get<ProductChoice>(SafeChoice(launch, multiprocessors)).splits;
  const int blocks = launch.key().blocks;
  if (least > 1) {
    list.pruned.push_back({absl::StrCat("splits=1 to ", least - 1),
                           absl::StrCat("a part of more than ", kMaxPartInputs,
                                        " inputs may overflow its int32 sums")});
  }
  if (!launch.has_room_for_sums()) {
    list.choices.push_back(ProductChoice{least});
    list.pruned.push_back(
        {AndMore(least + 1),
         absl::StrCat("partial sums of ", int64_t{launch.job_count} * launch.max_outputs,
                      " outputs, the workspace holds ", kMaxSplitOutputs)});
    return list;
  }
  const int64_t most_blocks =
      int64_t{kMostWaves} * kBlocksPerMultiprocessor * std::max(1, multiprocessors);
  int longest = 0;
  for (int splits = least; splits <= most; ++splits) {
    if (splits != least && splits > safe && int64_t{splits} * blocks > most_blocks) {
      list.pruned.push_back(
          {AndMore(splits), absl::StrCat("more than ", kMostWaves, " waves of ",
                                         kBlocksPerMultiprocessor, " blocks a multiprocessor")});
      return list;
    }
    const int part = LongestPart(launch.k, splits);
    if (part == longest && splits != safe) {
      list.pruned.push_back({absl::StrCat("splits=", splits),
                             absl::StrCat("its longest part has ", part * kBlockOutputs,
                                          " inputs, as with fewer parts")});
      continue;
    }
    longest = part;
    list.choices.push_back(ProductChoice{splits});
  }
  list.pruned.push_back(
      {AndMore(most + 1), absl::StrCat("parts of fewer than ", kMinPartInputs, " inputs")});
  return list;
}

CandidateList ReduceCandidates(const ReduceKey& key, int resident_blocks, int multiprocessors) {
  CandidateList list;
  std::set<ReduceChoice> all = {
      std::get<ReduceChoice>(SafeChoice(key, resident_blocks, multiprocessors))};
  for (const PairProtocol protocol : {PairProtocol::kLine, PairProtocol::kAck}) {
    const int64_t items = ItemsOf(key.words, protocol);
    for (const int threads : {64, 128, 256, 512, 1024}) {
      const auto full = static_cast<int>((items + threads - 1) / threads);
      all.insert({protocol, full, threads});
      // Two items a thread.
      if (full > 2) all.insert({protocol, (full + 1) / 2, threads});
    }
  }
  for (const ReduceChoice& choice : all) {
    AddReduce(choice, ItemsOf(key.words, choice.protocol), resident_blocks, list);
  }
  std::sort(list.choices.begin(), list.choices.end(), IsSmaller);
  return list;
}

}  // namespace tp2::tuning
