// What must hold of any checkpoint: a request's bits depend on its own rows and anchor alone.
// Public bug reports behind the single tests: research note dspark-model, section 12.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "libcore/base/rng.h"
#include "libcore/drafter/cuda_drafter.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/workload.h"
#include "tests/support/golden.h"
#include "tests/support/temp_model.h"

namespace tp2 {
namespace {

using ::testing::HasSubstr;

// The same promises are tested of every op set: TP2_TEST_BACKEND is "cpu" or "cuda", TP2_TEST_MODE
// "one-card" or "pair".
const std::string kBackend = TP2_TEST_BACKEND;
const std::string kMode = TP2_TEST_MODE;

class DrafterBehaviour : public ::testing::Test {
 protected:
  static constexpr int64_t kMaxPositions = 1048576;

  void SetUp() override {
    const absl::Status found = FindCudaDevices({}, kMode == "pair" ? 2 : 1);
    if (kBackend == "cuda" && !found.ok()) GTEST_SKIP() << found.message();
    engine_ = NewEngine();
  }

  static std::unique_ptr<StepEngine> NewEngine(const std::string& mode = kMode) {
    auto engine = MakeEngine({.model_dir = GoldenFolder(),
                              .backend = kBackend,
                              .mode = mode,
                              .max_positions = kMaxPositions,
                              .thread_count = 1});
    EXPECT_TRUE(engine.ok()) << engine.status();
    return std::move(*engine);
  }

  const DrafterConfig& config() const { return engine_->info().config; }

  // Row i of stream `seed`: the same values wherever it is inserted.
  std::vector<Bf16> Taps(uint64_t seed, int64_t first, int count) const {
    std::vector<Bf16> values;
    for (int64_t i = first; i < first + count; ++i) {
      Rng rng(seed * 1000003 + static_cast<uint64_t>(i));
      const std::vector<Bf16> row = RandomRows(rng, config().tap_values());
      values.insert(values.end(), row.begin(), row.end());
    }
    return values;
  }

  static absl::Status InsertInto(StepEngine& engine, int slot, int64_t position, int count,
                                 const std::vector<Bf16>& values) {
    return engine.Insert(
        {.slot = slot, .position = position, .row_count = count, .values = values});
  }

  // A fresh slot holding rows first .. first+count-1 of stream `seed`.
  void Fill(StepEngine& engine, int slot, uint64_t seed, int64_t first, int count) {
    ASSERT_TRUE(engine.ResetSlot(slot, first).ok());
    ASSERT_TRUE(InsertInto(engine, slot, first, count, Taps(seed, first, count)).ok());
  }

  static StepEntry DraftOnly(const StepEngine& engine, int slot, int32_t anchor) {
    StepEntry entry;
    entry.rows.slot = slot;
    entry.rows.position = engine.window(slot).length();
    entry.anchor = anchor;
    return entry;
  }

  static StepOutputs Draft(StepEngine& engine, std::vector<StepEntry> entries, int n_out = 5) {
    auto outputs = engine.Step({.entries = entries, .n_out = n_out, .wants_debug = true});
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs.ok() ? std::move(*outputs) : StepOutputs();
  }

  static void ExpectSameBits(const EntryOutput& a, const EntryOutput& b, int n_out = 5) {
    EXPECT_EQ(std::memcmp(a.tokens.data(), b.tokens.data(), 4 * n_out), 0);
    EXPECT_EQ(std::memcmp(a.confidence_logit.data(), b.confidence_logit.data(), 4 * n_out), 0);
    EXPECT_EQ(std::memcmp(a.margin.data(), b.margin.data(), 4 * n_out), 0);
    EXPECT_EQ(std::memcmp(a.runner_up.data(), b.runner_up.data(), 4 * n_out), 0);
  }

  std::unique_ptr<StepEngine> engine_;
};

TEST_F(DrafterBehaviour, ShorterDraftsArePrefixesOfLongerOnes) {
  for (int slot = 0; slot < 4; ++slot) Fill(*engine_, slot, slot, 0, 6 + slot);
  for (int requests = 1; requests <= 4; ++requests) {
    std::vector<StepEntry> entries;
    for (int slot = 0; slot < requests; ++slot)
      entries.push_back(DraftOnly(*engine_, slot, 7 * slot));
    const StepOutputs whole = Draft(*engine_, entries, 5);
    for (int n_out = 1; n_out < 5; ++n_out) {
      const StepOutputs part = Draft(*engine_, entries, n_out);
      for (int i = 0; i < requests; ++i) {
        ExpectSameBits(part.entries[i], whole.entries[i], n_out);
        EXPECT_EQ(part.entries[i].tokens[n_out], -1);
      }
    }
  }
}

TEST_F(DrafterBehaviour, BatchMatesAndOrderChangeNothing) {
  const std::vector<int> slots = {3, 0, 2, 1};
  std::vector<StepEntry> entries;
  for (const int slot : slots) {
    Fill(*engine_, slot, 40 + slot, 100 * slot, 3 + 5 * slot);
    entries.push_back(DraftOnly(*engine_, slot, 11 + slot));
  }
  const StepOutputs together = Draft(*engine_, entries);
  for (size_t i = 0; i < slots.size(); ++i) {
    ExpectSameBits(Draft(*engine_, {entries[i]}).entries[0], together.entries[i]);
  }
  // Different requests do differ, so the comparison above is not vacuous.
  EXPECT_NE(together.entries[0].tokens, together.entries[1].tokens);
}

TEST_F(DrafterBehaviour, ADraftLeavesNoTrace) {
  Fill(*engine_, 0, 1, 0, 9);
  const StepEntry entry = DraftOnly(*engine_, 0, 5);
  const StepOutputs first = Draft(*engine_, {entry});
  Draft(*engine_, {DraftOnly(*engine_, 0, 900)});
  ExpectSameBits(Draft(*engine_, {entry}).entries[0], first.entries[0]);
}

TEST_F(DrafterBehaviour, InsertsWithoutDraftsEqualOneInsert) {
  Fill(*engine_, 0, 2, 0, 12);
  ASSERT_TRUE(engine_->ResetSlot(1, 0).ok());
  int64_t position = 0;
  for (const int count : {1, 2, 3, 1, 5}) {
    ASSERT_TRUE(InsertInto(*engine_, 1, position, count, Taps(2, position, count)).ok());
    position += count;
  }
  ExpectSameBits(Draft(*engine_, {DraftOnly(*engine_, 0, 5)}).entries[0],
                 Draft(*engine_, {DraftOnly(*engine_, 1, 5)}).entries[0]);
}

TEST_F(DrafterBehaviour, InsertingInTheStepEqualsInsertingBefore) {
  Fill(*engine_, 0, 3, 0, 10);
  Fill(*engine_, 1, 3, 0, 7);
  const std::vector<Bf16> rows = Taps(3, 7, 3);
  StepEntry entry;
  entry.rows = {.slot = 1, .position = 7, .row_count = 3, .values = rows};
  entry.anchor = 77;
  ExpectSameBits(Draft(*engine_, {entry}).entries[0],
                 Draft(*engine_, {DraftOnly(*engine_, 0, 77)}).entries[0]);
}

TEST_F(DrafterBehaviour, RollbackRestoresTheWindow) {
  Fill(*engine_, 0, 4, 0, 40);
  Fill(*engine_, 1, 4, 0, 40);
  // Slot 1 takes six rows that are then rejected, and the right ones instead.
  ASSERT_TRUE(InsertInto(*engine_, 1, 40, 6, Taps(99, 40, 6)).ok());
  for (const int slot : {0, 1}) ASSERT_TRUE(InsertInto(*engine_, slot, 40, 2, Taps(4, 40, 2)).ok());
  const StepOutputs kept = Draft(*engine_, {DraftOnly(*engine_, 0, 5)});
  const StepOutputs rolled = Draft(*engine_, {DraftOnly(*engine_, 1, 5)});
  EXPECT_EQ(rolled.entries[0].window_rows, config().window);
  ExpectSameBits(kept.entries[0], rolled.entries[0]);
}

// Acceptance of 0.3 %: the window read rows of the slot's previous tenant.
TEST_F(DrafterBehaviour, ANewTenantNeverSeesOldRows) {
  Fill(*engine_, 5, 6, 0, 60);
  Fill(*engine_, 5, 7, 20, 3);
  auto fresh = NewEngine();
  Fill(*fresh, 5, 7, 20, 3);
  const StepOutputs reused = Draft(*engine_, {DraftOnly(*engine_, 5, 1)});
  EXPECT_EQ(reused.entries[0].window_rows, 3);
  ExpectSameBits(reused.entries[0], Draft(*fresh, {DraftOnly(*fresh, 5, 1)}).entries[0]);
}

TEST_F(DrafterBehaviour, AnEngineMadeAnewGivesTheSameBits) {
  Fill(*engine_, 0, 16, 0, 8);
  const EntryOutput first = Draft(*engine_, {DraftOnly(*engine_, 0, 3)}).entries[0];
  engine_ = nullptr;
  engine_ = NewEngine();
  Fill(*engine_, 5, 16, 0, 8);
  ExpectSameBits(Draft(*engine_, {DraftOnly(*engine_, 5, 3)}).entries[0], first);
}

TEST_F(DrafterBehaviour, OnlyTheNewestWindowOfALongPromptMatters) {
  Fill(*engine_, 0, 8, 0, 100);
  const int window = config().window;
  Fill(*engine_, 1, 8, 100 - window, window);
  ExpectSameBits(Draft(*engine_, {DraftOnly(*engine_, 0, 3)}).entries[0],
                 Draft(*engine_, {DraftOnly(*engine_, 1, 3)}).entries[0]);
}

TEST_F(DrafterBehaviour, EverySlotGivesTheSameBits) {
  std::vector<EntryOutput> outputs;
  for (int slot = 0; slot < kSlotCount; ++slot) {
    Fill(*engine_, slot, 9, 900000, 8);
    outputs.push_back(Draft(*engine_, {DraftOnly(*engine_, slot, 2)}).entries[0]);
  }
  for (const EntryOutput& output : outputs) ExpectSameBits(output, outputs[0]);
}

TEST_F(DrafterBehaviour, ThreadsAndRanksChangeNothing) {
  auto threads = MakeEngine({.model_dir = GoldenFolder(), .backend = "cpu", .thread_count = 3});
  ASSERT_TRUE(threads.ok());
  auto ranks = NewEngine("emulated");
  std::vector<StepOutputs> outputs;
  for (StepEngine* engine : {engine_.get(), threads->get(), ranks.get()}) {
    Fill(*engine, 0, 10, 0, 8);
    Fill(*engine, 1, 11, 0, 2);
    outputs.push_back(Draft(*engine, {DraftOnly(*engine, 0, 2), DraftOnly(*engine, 1, 1000)}));
  }
  for (const StepOutputs& output : outputs) {
    ExpectSameBits(output.entries[0], outputs[0].entries[0]);
    ExpectSameBits(output.entries[1], outputs[0].entries[1]);
    EXPECT_EQ(output.base_logits, outputs[0].base_logits);
    EXPECT_EQ(output.head_hidden, outputs[0].head_hidden);
  }
}

TEST_F(DrafterBehaviour, MainXRowsAreTakenAsTheyAre) {
  // A captured main_x row is bf16 while ours stays fp32 between norm and product: near, not equal.
  Fill(*engine_, 0, 12, 0, 4);
  ASSERT_TRUE(engine_->ResetSlot(1, 0).ok());
  Rng rng(1);
  const std::vector<Bf16> rows = RandomRows(rng, 4 * config().dim);
  ASSERT_TRUE(
      engine_
          ->Insert(
              {.slot = 1, .position = 0, .kind = RowKind::kMainX, .row_count = 4, .values = rows})
          .ok());
  EXPECT_EQ(Draft(*engine_, {DraftOnly(*engine_, 1, 2)}).entries[0].window_rows, 4);
}

TEST_F(DrafterBehaviour, BadArgumentsAreRefusedAndChangeNothing) {
  Fill(*engine_, 0, 13, 50, 8);
  const SlotWindow before = engine_->window(0);
  const auto good = DraftOnly(*engine_, 0, 5);
  const StepOutputs expected = Draft(*engine_, {good});
  const std::vector<Bf16> rows = Taps(13, 0, 129);
  const auto refused = [&](StepEntry entry, const char* what) {
    // Behind a good entry: nothing of the batch may run.
    const auto outputs = engine_->Step({.entries = std::vector<StepEntry>{entry}});
    EXPECT_EQ(outputs.status().code(), absl::StatusCode::kOutOfRange) << what;
    EXPECT_THAT(std::string(outputs.status().message()), HasSubstr(what));
    EXPECT_EQ(engine_->window(0), before) << what;
  };
  StepEntry entry = good;
  entry.rows.slot = 8;
  refused(entry, "slot");
  entry = good;
  entry.anchor = config().vocab;
  refused(entry, "anchor");
  entry.anchor = -1;
  refused(entry, "anchor");
  entry = good;
  entry.rows.position = 59;
  refused(entry, "insert position");
  entry.rows.position = 49;
  refused(entry, "insert position");
  entry = good;
  entry.rows.row_count = 129;
  entry.rows.values = rows;
  refused(entry, "rows");
  entry = good;
  entry.rows.row_count = 2;
  refused(entry, "row values");
  entry = good;
  entry.rows.slot = 7;
  entry.rows.position = 0;
  refused(entry, "window");
  for (const int n_out : {0, 6}) {
    EXPECT_THAT(
        std::string(engine_->Step({.entries = {&good, 1}, .n_out = n_out}).status().message()),
        HasSubstr("n_out"));
  }
  const std::vector<StepEntry> twice = {good, good};
  EXPECT_THAT(std::string(engine_->Step({.entries = twice}).status().message()),
              HasSubstr("twice"));
  EXPECT_FALSE(engine_->Step({.entries = {}}).ok());
  ExpectSameBits(Draft(*engine_, {good}).entries[0], expected.entries[0]);
}

TEST_F(DrafterBehaviour, RowsThatAreNotNumbersAreAnErrorNotADraft) {
  Fill(*engine_, 0, 14, 0, 8);
  std::vector<Bf16> rows = Taps(14, 8, 1);
  rows[3] = ToBf16(std::numeric_limits<float>::quiet_NaN());
  StepEntry entry;
  entry.rows = {.slot = 0, .position = 8, .row_count = 1, .values = rows};
  EXPECT_EQ(engine_->Step({.entries = {&entry, 1}}).status().code(), absl::StatusCode::kInternal);
  // The slot heals with new rows, and the latch does not stick.
  Fill(*engine_, 0, 14, 0, 8);
  EXPECT_GE(Draft(*engine_, {DraftOnly(*engine_, 0, 5)}).entries[0].tokens[0], 0);
}

TEST_F(DrafterBehaviour, TheLastPositionIsUsableAndTheNextIsNot) {
  Fill(*engine_, 0, 15, kMaxPositions - 4, 4);
  Draft(*engine_, {DraftOnly(*engine_, 0, 5)});
  EXPECT_FALSE(InsertInto(*engine_, 0, kMaxPositions, 1, Taps(15, 0, 1)).ok());
  EXPECT_FALSE(engine_->ResetSlot(0, kMaxPositions).ok());
}

TEST(MakeEngine, RefusesWhatItCannotDo) {
  const auto refusal = [](const auto& change) {
    EngineOptions options;
    options.model_dir = GoldenFolder();
    change(options);
    return std::string(MakeEngine(options).status().message());
  };
  EXPECT_THAT(refusal([](auto& o) { o.backend = "gpu"; }), HasSubstr("backend"));
  EXPECT_THAT(refusal([](auto& o) { o.mode = "triple"; }), HasSubstr("mode"));
  EXPECT_THAT(refusal([](auto& o) { o.max_positions = 0; }), HasSubstr("max-model-len"));
  EXPECT_THAT(refusal([](auto& o) { o.max_positions = 1048577; }), HasSubstr("max-model-len"));
  EXPECT_THAT(refusal([](auto& o) { o.model_dir = "/nowhere"; }), HasSubstr("/nowhere"));
}

// 511 tiles of 256: rank 0 has two tokens more than its offsets reach.
TEST(MakeEngine, RefusesAVocabularyPartThatAPairsExchangeCannotName) {
  SyntheticShape shape = *FindSyntheticShape("tiny");
  shape.config.vocab = 511 * 256;
  const TempModel model(shape);
  const auto made = [&](const std::string& mode) {
    return MakeEngine({.model_dir = model.dir(), .backend = "cpu", .mode = mode}).status();
  };
  EXPECT_THAT(made("host-pair").message(),
              HasSubstr("rank 0: expected at most 65534 tokens of a rank, got 65536"));
  EXPECT_TRUE(made("emulated").ok());
}

}  // namespace
}  // namespace tp2
