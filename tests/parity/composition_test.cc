// A request's drafts depend on that request alone: not on its batch mates, their order, its slot or
// n_out. Names carry "Thread": host-pair runs two.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "libcore/drafter/make_engine.h"
#include "libcore/parity/workload.h"
#include "tests/support/temp_model.h"

namespace tp2 {
namespace {

struct Request {
  std::vector<Bf16> rows;
  int row_count;
  int32_t anchor;
};

std::vector<Request> MakeRequests(const DrafterConfig& config) {
  Rng rng(5);
  std::vector<Request> requests;
  for (const int row_count : {1, 3, 8, 24}) {  // partial, full and wrapped windows
    requests.push_back({RandomRows(rng, int64_t{row_count} * config.tap_values()), row_count,
                        static_cast<int32_t>(rng.Below(config.vocab))});
  }
  return requests;
}

// Drafts of `chosen` together, in that order, in slots from `first_slot` down.
std::vector<EntryOutput> Draft(StepEngine& engine, const std::vector<Request>& requests,
                               const std::vector<int>& chosen, int first_slot, int n_out) {
  std::vector<StepEntry> entries;
  for (const int index : chosen) {
    const Request& request = requests[index];
    StepEntry& entry = entries.emplace_back();
    entry.rows.slot = (first_slot + 3 * static_cast<int>(entries.size())) % kSlotCount;
    entry.rows.position = 1000;
    entry.rows.row_count = request.row_count;
    entry.rows.values = request.rows;
    entry.anchor = request.anchor;
    EXPECT_TRUE(engine.ResetSlot(entry.rows.slot, 1000).ok());
  }
  const auto outputs = engine.Step({.entries = entries, .n_out = n_out});
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs->entries;
}

TEST(CompositionThread, EveryBatchOrderSlotAndNOutGivesTheSameBitsInEveryMode) {
  const TempModel model("tiny");
  std::vector<EntryOutput> alone;
  int compared = 0;
  for (const char* mode : {"one-card", "emulated", "host-pair"}) {
    const auto engine = MakeEngine({.model_dir = model.dir(), .backend = "cpu", .mode = mode});
    ASSERT_TRUE(engine.ok()) << engine.status();
    const std::vector<Request> requests = MakeRequests((*engine)->info().config);
    for (int i = 0; alone.size() < requests.size(); ++i) {
      alone.push_back(Draft(**engine, requests, {i}, i, kBlockRows)[0]);
    }
    std::vector<int> order(requests.size());
    std::iota(order.begin(), order.end(), 0);
    int turn = 0;
    do {
      const int count = 1 + turn % kMaxRequests;
      const int n_out = 1 + turn / kMaxRequests % kBlockRows;
      const std::vector<int> chosen(order.begin(), order.begin() + count);
      const auto outputs = Draft(**engine, requests, chosen, turn++, n_out);
      for (int b = 0; b < count; ++b) {
        const EntryOutput& expected = alone[chosen[b]];
        for (int i = 0; i < n_out; ++i) {
          EXPECT_EQ(outputs[b].tokens[i], expected.tokens[i]) << mode;
          EXPECT_EQ(outputs[b].margin[i], expected.margin[i]) << mode;
          EXPECT_EQ(outputs[b].confidence_logit[i], expected.confidence_logit[i]) << mode;
          ++compared;
        }
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
  EXPECT_GT(compared, 400);
}

}  // namespace
}  // namespace tp2
