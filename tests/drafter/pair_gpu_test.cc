// The drafter of a pair: one set of bits with the CPU, whichever card is which rank; every failure
// is told, nothing of a failed STEP is returned, and the STEPs after a recovery are the ones that
// an undisturbed drafter makes. Built twice: both ranks on one card, and on two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "libcore/base/clock.h"
#include "libcore/base/rng.h"
#include "libcore/collectives/cuda/harness.h"
#include "libcore/drafter/cuda_parts.h"
#include "libcore/drafter/drafter-inl.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/self_run.h"
#include "tests/support/golden.h"
#include "tests/support/temp_model.h"

namespace tp2 {
namespace {

using ::testing::HasSubstr;

constexpr int kCards = TP2_TEST_CARDS;
constexpr int kFaultySteps = kCards == 2 ? 1000 : 200;
constexpr int64_t kShortMs = 20;

// By rank; nothing when the machine has too few cards.
std::vector<std::string> CardUuids(bool is_swapped = false) {
  const auto cards = device::SelectDevices({}, kCards);
  if (!cards.ok()) return {};
  std::vector<std::string> uuids = {cards->front().uuid, cards->back().uuid};
  if (is_swapped) std::swap(uuids[0], uuids[1]);
  return uuids;
}

#define TP2_NEEDS_PAIR() \
  if (CardUuids().empty()) GTEST_SKIP() << "fewer than " << kCards << " usable cards"

EngineOptions PairOptions(const std::string& folder) {
  return {.model_dir = folder, .backend = "cuda", .mode = "pair", .device_uuids = CardUuids()};
}

uint64_t DigestOf(StepEngine& engine, int rounds, bool is_grid = false) {
  const SelfRunOptions options = {.rounds = rounds};
  const auto result = is_grid ? RunGrid(engine, options) : RunSelf(engine, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->digest : 0;
}

uint64_t DigestOf(const EngineOptions& options, int rounds, bool is_grid = false) {
  const auto engine = MakeEngine(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? DigestOf(**engine, rounds, is_grid) : 0;
}

class PairDrafterTest : public testing::TestWithParam<std::string> {
 protected:
  PairDrafterTest() : folder_(GetParam() == "golden" ? GoldenFolder() : model_.dir()) {}
  const TempModel model_{GetParam() == "golden" ? "tiny" : GetParam().c_str()};
  const std::string folder_;
};

TEST_P(PairDrafterTest, HasTheDigestOfTheCpuWithAndWithoutGraphs) {
  TP2_NEEDS_PAIR();
  const int rounds = GetParam() == "medium" ? 12 : 41;
  const uint64_t expected = DigestOf({.model_dir = folder_, .backend = "cpu"}, rounds);
  EngineOptions options = PairOptions(folder_);
  EXPECT_EQ(DigestOf(options, rounds), expected);
  options.uses_graphs = false;
  EXPECT_EQ(DigestOf(options, rounds), expected);
}

TEST_P(PairDrafterTest, EveryGraphKeyHasTheDigestOfTheCpuAlsoAfterASwapAndMadeAnew) {
  TP2_NEEDS_PAIR();
  const uint64_t expected = DigestOf({.model_dir = folder_, .backend = "cpu"}, 41, true);
  EngineOptions options = PairOptions(folder_);
  EXPECT_EQ(DigestOf(options, 41, true), expected);
  options.device_uuids = CardUuids(/*is_swapped=*/true);
  EXPECT_EQ(DigestOf(options, 41, true), expected);
  EXPECT_EQ(DigestOf(PairOptions(folder_), 41, true), expected);
}

INSTANTIATE_TEST_SUITE_P(Models, PairDrafterTest, testing::Values("golden", "tiny", "medium"));

// A pair whose op set the test can reach.
struct Pair {
  explicit Pair(const std::string& folder, int64_t timeout_ms = kShortMs,
                uint32_t max_epoch = coll::kMaxEpoch) {
    auto checkpoint = Checkpoint::Open(folder);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    std::vector<ShardPlan> plans;
    for (const int rank : {0, 1}) plans.push_back(*MakeShardPlan((*checkpoint)->config(), 2, rank));
    EngineInfo info;
    info.config = (*checkpoint)->config();
    info.max_positions = kDefaultModelLength;
    info.backend = "cuda";
    info.mode = "pair";
    info.tp = 2;
    const auto cards = device::SelectDevices(CardUuids(), 2);
    EXPECT_TRUE(cards.ok()) << cards.status();
    auto pair_ops =
        CudaPairOps::Create(info.config, info.max_positions,
                            {.cards = *cards, .timeout_ms = timeout_ms, .max_epoch = max_epoch});
    EXPECT_TRUE(pair_ops.ok()) << pair_ops.status();
    ops = pair_ops->get();
    auto made = MakeRecordedDrafter(std::move(info), *std::move(checkpoint), *std::move(pair_ops),
                                    plans, *ops);
    EXPECT_TRUE(made.ok()) << made.status();
    drafter = *std::move(made);
  }

  CudaPairOps* ops = nullptr;
  std::unique_ptr<Drafter<CudaPairOps>> drafter;
};

// What a slot's client sends: rows that are a function of (slot, position), so that a window can be
// sent again.
class Client {
 public:
  explicit Client(const DrafterConfig& config) : config_(config) {}

  std::vector<Bf16> Rows(int slot, int64_t position, int count) const {
    std::vector<Bf16> rows;
    for (int64_t p = position; p < position + count; ++p) {
      Rng rng(static_cast<uint64_t>(slot) << 40 | static_cast<uint64_t>(p));
      for (int i = 0; i < config_.tap_values(); ++i) rows.push_back(ToBf16(rng.Signed()));
    }
    return rows;
  }
  // The newest window before `length`, as after a lost STEP.
  absl::Status Resend(StepEngine& engine, int slot, int64_t length) const {
    const int64_t begin = std::max<int64_t>(0, length - config_.window);
    TP2_RETURN_IF_ERROR(engine.ResetSlot(slot, begin));
    const auto count = static_cast<int>(length - begin);
    const std::vector<Bf16> rows = Rows(slot, begin, count);
    return engine.Insert({.slot = slot, .position = begin, .row_count = count, .values = rows});
  }

 private:
  DrafterConfig config_;
};

bool AreEqual(const StepOutputs& a, const StepOutputs& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (size_t i = 0; i < a.entries.size(); ++i) {
    const EntryOutput &x = a.entries[i], &y = b.entries[i];
    if (x.tokens != y.tokens || x.runner_up != y.runner_up || x.window_rows != y.window_rows ||
        std::memcmp(&x.confidence_logit, &y.confidence_logit, sizeof(x.confidence_logit)) != 0 ||
        std::memcmp(&x.margin, &y.margin, sizeof(x.margin)) != 0) {
      return false;
    }
  }
  return true;
}

enum class Fault {
  kNone,
  kShortDelay,  // well within the deadline: no failure
  kLateRank,
  kLostRank,  // never launched
  kCancel,    // while the other rank may already wait
};
constexpr int kFaultKinds = 5;

// The hook that does `fault` to `rank` in every draft.
CudaPairOps::DraftHook HookOf(Fault fault, int rank, CudaPairOps* ops) {
  return [=](int launched, cudaStream_t stream) {
    if (launched != rank) return true;
    switch (fault) {
      case Fault::kNone:
        return true;
      case Fault::kShortDelay:
        coll::cuda::LaunchStall(kShortMs * 1'000'000 / 10, stream);
        return true;
      case Fault::kLateRank:
        coll::cuda::LaunchStall(kShortMs * 1'000'000 * 3 / 2, stream);
        return true;
      case Fault::kLostRank:
        return false;
      case Fault::kCancel:
        EXPECT_TRUE(ops->Cancel().ok());
        return true;
    }
    return true;
  };
}

TEST(PairDrafterFaults, FailedStepsReturnNothingAndEveryLaterOneHasTheUndisturbedBits) {
  TP2_NEEDS_PAIR();
  const TempModel model("tiny");
  Pair pair(model.dir());
  const auto undisturbed = MakeEngine({.model_dir = model.dir(), .backend = "cuda"});
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.status();
  const Client client(pair.drafter->info().config);
  Rng rng(5);
  const SteadyClock clock;
  std::vector<int64_t> lengths(kMaxRequests, 0);
  int failed = 0, drafted = 0;
  for (int step = 0; step < kFaultySteps; ++step) {
    const auto below = [&rng](int bound) { return static_cast<int>(rng.Below(bound)); };
    const int requests = 1 + below(kMaxRequests);
    std::vector<std::vector<Bf16>> rows;
    std::vector<StepEntry> entries;
    for (int slot = 0; slot < requests; ++slot) {
      const int count = 1 + below(6);
      rows.push_back(client.Rows(slot, lengths[slot], count));
      entries.push_back({.rows = {.slot = slot,
                                  .position = lengths[slot],
                                  .row_count = count,
                                  .values = rows.back()},
                         .anchor = below(pair.drafter->info().config.vocab)});
    }
    const StepRequest request = {
        .entries = entries, .n_out = 1 + below(kBlockRows), .wants_margins = below(2) == 0};
    const auto fault = below(2) == 0 ? Fault::kNone : static_cast<Fault>(below(kFaultKinds));
    const int rank = below(2);
    pair.ops->set_draft_hook(HookOf(fault, rank, pair.ops));
    const int64_t start_ns = clock.NowNs();
    auto outputs = pair.drafter->Step(request);
    EXPECT_LT(clock.NowNs() - start_ns, 2'000'000'000) << "step " << step;
    pair.ops->set_draft_hook(nullptr);
    ASSERT_TRUE(pair.drafter->is_healthy()) << "step " << step << outputs.status();
    const bool must_fail = fault >= Fault::kLateRank;
    ASSERT_EQ(outputs.ok(), !must_fail) << "step " << step << " " << outputs.status();
    if (must_fail) {
      ++failed;
      EXPECT_EQ(outputs.status().code(), absl::StatusCode::kInternal);
      for (const StepEntry& entry : entries) {
        ASSERT_TRUE(client.Resend(*pair.drafter, entry.rows.slot, lengths[entry.rows.slot]).ok());
      }
      outputs = pair.drafter->Step(request);
      ASSERT_TRUE(outputs.ok()) << "after a recovery, step " << step << " " << outputs.status();
    }
    const auto expected = (*undisturbed)->Step(request);
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_TRUE(AreEqual(*outputs, *expected)) << "step " << step;
    ++drafted;
    for (const StepEntry& entry : entries) lengths[entry.rows.slot] += entry.rows.row_count;
  }
  RecordProperty("failed_steps", failed);
  EXPECT_EQ(drafted, kFaultySteps);
  EXPECT_GT(failed, kFaultySteps / 5);
}

TEST(PairDrafterPositions, FarOnesHaveTheBitsOfTheCpu) {
  TP2_NEEDS_PAIR();
  EngineOptions options = PairOptions(GoldenFolder());
  options.max_positions = kMaxModelLength;
  const auto pair = MakeEngine(options);
  ASSERT_TRUE(pair.ok()) << pair.status();
  options.backend = "cpu";
  options.mode = "one-card";
  const auto cpu = MakeEngine(options);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  const Client client((*cpu)->info().config);
  const int64_t lengths[] = {900'000, kMaxModelLength - 1};
  std::vector<StepEntry> entries;
  for (int slot = 0; slot < 2; ++slot) {
    for (StepEngine* engine : {pair->get(), cpu->get()}) {
      ASSERT_TRUE(client.Resend(*engine, slot, lengths[slot]).ok());
    }
    entries.push_back({.rows = {.slot = slot, .position = lengths[slot]}, .anchor = 7 + slot});
  }
  const auto ours = (*pair)->Step({.entries = entries});
  const auto expected = (*cpu)->Step({.entries = entries});
  ASSERT_TRUE(ours.ok() && expected.ok()) << ours.status() << expected.status();
  EXPECT_TRUE(AreEqual(*ours, *expected));
}

// Nobody knows what a rank that is still busy writes to: only a new process heals.
TEST(PairDrafterFaults, RankThatDoesNotBecomeIdlePoisonsTheEngine) {
  TP2_NEEDS_PAIR();
  const TempModel model("tiny");
  Pair pair(model.dir());
  const Client client(pair.drafter->info().config);
  ASSERT_TRUE(client.Resend(*pair.drafter, 0, 8).ok());
  pair.ops->set_draft_hook([](int rank, cudaStream_t stream) {
    if (rank == 1) coll::cuda::LaunchStall(2'500'000'000, stream);
    return true;
  });
  const std::vector<StepEntry> entries = {{.rows = {.slot = 0, .position = 8}, .anchor = 1}};
  const auto outputs = pair.drafter->Step({.entries = entries});
  EXPECT_EQ(outputs.status().code(), absl::StatusCode::kAborted) << outputs.status();
  EXPECT_FALSE(pair.drafter->is_healthy());
  EXPECT_EQ(pair.drafter->Step({.entries = entries}).status().code(), absl::StatusCode::kAborted);
}

TEST(PairDrafterFaults, PairThatRunsOutOfEpochsResetsInTimeWithTheSameBits) {
  TP2_NEEDS_PAIR();
  const TempModel model("tiny");
  const uint64_t expected = DigestOf({.model_dir = model.dir(), .backend = "cpu"}, 41);
  // A STEP has at most a dozen operations a stage and two for each position.
  Pair pair(model.dir(), kShortMs, /*max_epoch=*/2048);
  EXPECT_EQ(DigestOf(*pair.drafter, 41), expected);
  EXPECT_EQ(DigestOf(*pair.drafter, 41), expected);
  EXPECT_EQ(DigestOf(*pair.drafter, 41), expected);
}

}  // namespace
}  // namespace tp2
