// Whole rounds of the golden pack: the drafter against DeepSeek's own code. Bounds: tests/golden/v41-tiny/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "libcore/drafter/cpu_drafter.h"
#include "tests/support/golden.h"

namespace tp2 {
namespace {

class Recorder final : public StepObserver {
 public:
  void OnTensor(const std::string& name, std::vector<int64_t> shape,
                std::span<const float> values) override {
    tensors[name].assign(values.begin(), values.end());
  }
  std::map<std::string, std::vector<float>> tensors;
};

// Replays all golden rounds on one engine and hands each to `check`.
template <class S, class Check>
void ReplayRounds(std::optional<KvFakeQuant> kv_fake_quant, const Check& check) {
  auto checkpoint = Checkpoint::Open(kGoldenDir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto plan = MakeShardPlan((*checkpoint)->config(), 1, 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  auto drafter = MakeCpuDrafter<S>(std::move(*checkpoint), {&*plan, 1},
                                   {.thread_count = 1, .kv_fake_quant = kv_fake_quant});
  Recorder recorder;
  drafter->set_observer(&recorder);
  const GoldenTensors inputs("inputs.safetensors");
  const int row_values = drafter->info().config.tap_values();
  for (const GoldenRound& round : GoldenRounds(inputs)) {
    const std::vector<Bf16> taps = inputs.Bf16s(round.request + ".taps");
    if (round.starts_request) {
      ASSERT_TRUE(drafter->ResetSlot(2, round.position).ok());
    }
    StepEntry entry;
    entry.rows = {.slot = 2,
                  .position = round.position,
                  .row_count = round.row_count,
                  .values = {taps.data() + static_cast<int64_t>(round.first_row) * row_values,
                             static_cast<size_t>(round.row_count) * row_values}};
    entry.anchor = round.anchor;
    recorder.tensors.clear();
    const auto outputs = drafter->Step({.entries = {&entry, 1}, .n_out = 5, .wants_debug = true});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    for (int i = 0; i < kBlockRows; ++i) {
      recorder.tensors["drafts"].push_back(static_cast<float>(outputs->entries[0].tokens[i]));
      for (const char* name : {"top2_ids", "top2_values"}) {
        const auto& part = recorder.tensors[std::string(name) + "." + std::to_string(i)];
        recorder.tensors[name].insert(recorder.tensors[name].end(), part.begin(), part.end());
      }
    }
    check(round, recorder.tensors);
  }
}

// Tensors that a step does not leave behind one by one; golden_ops_test compares them operation by operation.
const std::set<std::string> kComparedByOperation = {"routed", "shared", "markov_bias", "route_margin"};

bool IsComparedByOperation(const std::string& name) {
  const size_t dot = name.rfind('.');
  return kComparedByOperation.contains(dot == std::string::npos ? name : name.substr(dot + 1));
}

// Every named tensor of one golden file against the unrounded drafter.
void ExpectUnroundedAgreement(const std::string& file, KvFakeQuant kv_fake_quant, double max_bound) {
  const GoldenTensors golden(file);
  int compared = 0, rounds = 0;
  std::map<std::string, double> worst;
  ReplayRounds<float>(kv_fake_quant, [&](const GoldenRound& round, auto& got) {
    ++rounds;
    const std::string prefix = round.name + ".";
    for (const std::string& full_name : golden.Names()) {
      if (full_name.rfind(prefix, 0) != 0) continue;
      const std::string name = full_name.substr(prefix.size());
      if (IsComparedByOperation(name)) continue;
      ASSERT_TRUE(got.contains(name)) << full_name;
      const std::vector<float> expected = golden.Floats(full_name);
      ASSERT_EQ(got[name].size(), expected.size()) << full_name;
      ++compared;
      if (name == "drafts" || name == "top2_ids" || name.find("route_ids") != std::string::npos) {
        EXPECT_EQ(got[name], expected) << full_name;
      } else if (name == "base_logits") {
        const double error = RelativeError(got[name], expected);
        worst["base_logits rel"] = std::max(worst["base_logits rel"], error);
        EXPECT_LE(error, 4e-3) << full_name;
      } else {
        const double error = MaxError(got[name], expected);
        worst["intermediate max"] = std::max(worst["intermediate max"], error);
        EXPECT_LE(error, max_bound) << full_name;
      }
    }
  });
  EXPECT_EQ(rounds, 21);
  EXPECT_GT(compared, 21 * 5);
  for (const auto& [what, error] : worst) {
    std::cout << "# " << file << " " << what << " " << error << "\n";
  }
}

TEST(GoldenRounds, UnroundedDrafterAgreesWithF32) {
  ExpectUnroundedAgreement("golden_f32.safetensors", KvFakeQuant::kNone, 8e-3);
}

TEST(GoldenRounds, UnroundedDrafterAgreesWithF32AndFakeQuantization) {
  ExpectUnroundedAgreement("golden_f32_fq.safetensors", KvFakeQuant::kReference, 8e-3);
}

// The product's numerics against the reference's bf16: everybody's roundings differ there, so the README bounds the
// base logits and says which experts and drafts must still agree.
TEST(GoldenRounds, ProductAgreesWithBf16) {
  const GoldenTensors golden("golden_bf16.safetensors");
  int rounds = 0, drafts_compared = 0, routings_compared = 0;
  double worst = 0;
  ReplayRounds<Bf16>(std::nullopt, [&](const GoldenRound& round, auto& got) {
    ++rounds;
    const std::string prefix = round.name + ".";
    bool is_rerouted = false;
    for (int stage = 0; stage < 3; ++stage) {
      const std::string at = "s" + std::to_string(stage) + ".";
      const std::vector<float> ids = golden.Floats(prefix + at + "route_ids");
      const std::vector<float> margins = golden.Floats(prefix + at + "route_margin");
      for (int row = 0; row < kBlockRows && !is_rerouted; ++row) {
        std::vector<float> mine(got[at + "route_ids"].begin() + row * 3,
                                got[at + "route_ids"].begin() + row * 3 + 3);
        std::vector<float> theirs(ids.begin() + row * 3, ids.begin() + row * 3 + 3);
        std::sort(mine.begin(), mine.end());
        std::sort(theirs.begin(), theirs.end());
        if (margins[row] > 0.01) {
          EXPECT_EQ(mine, theirs) << prefix << at << row;
          ++routings_compared;
        } else if (mine != theirs) {
          is_rerouted = true;
        }
      }
    }
    if (is_rerouted) return;
    const std::vector<float> expected = golden.Floats(prefix + "base_logits");
    const double error = RelativeError(got["base_logits"], expected);
    worst = std::max(worst, error);
    EXPECT_LE(error, 3e-2) << prefix;
    double largest = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(got["base_logits"][i]) - expected[i]));
    }
    const std::vector<float> values = golden.Floats(prefix + "top2_values");
    const std::vector<float> drafts = golden.Floats(prefix + "drafts");
    for (int i = 0; i < kBlockRows; ++i) {
      // A different draft feeds the next position: what follows is not comparable.
      if (values[2 * i] - values[2 * i + 1] > 2 * largest) {
        EXPECT_EQ(got["drafts"][i], drafts[i]) << prefix << i;
        ++drafts_compared;
      }
      if (got["drafts"][i] != drafts[i]) break;
    }
  });
  EXPECT_EQ(rounds, 21);
  EXPECT_GT(drafts_compared, 60);
  EXPECT_GT(routings_compared, 200);
  std::cout << "# golden_bf16 base_logits rel " << worst << ", " << drafts_compared << " drafts, "
            << routings_compared << " routings compared\n";
}

}  // namespace
}  // namespace tp2
