// Whole rounds of the golden pack: the drafter against DeepSeek's own code. Bounds:
// tests/golden/v41-tiny/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "libcore/drafter/cpu_drafter-inl.h"
#include "libcore/ops/cpu/attention_ops-inl.h"
#include "libcore/ops/cpu/block_ops-inl.h"
#include "libcore/ops/cpu/expert_ops-inl.h"
#include "libcore/ops/cpu/head_ops-inl.h"
#include "tests/support/dense_linear.h"
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
template <class Ops, class Check>
void ReplayRounds(std::optional<KvFakeQuant> kv_fake_quant, const Check& check) {
  auto checkpoint = Checkpoint::Open(kGoldenDir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto plan = MakeShardPlan((*checkpoint)->config(), 1, 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  auto drafter = MakeCpuDrafter<Ops>(std::move(*checkpoint), {&*plan, 1},
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

// Tensors that a step does not leave behind one by one; golden_ops_test compares them operation by
// operation.
const std::set<std::string> kComparedByOperation = {"routed", "shared", "markov_bias",
                                                    "route_margin"};

std::string LastPart(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

// README's bounds for one way of computing; "rel" and "max" as in tests/support/golden.h.
struct Bounds {
  double base_logits_rel;
  double base_logits_rel_median;
  std::optional<double> confidence_abs;  // without it confidence is bounded as the others are
  double rows_max;                       // main_x, rings, block rows
  double other_max;
};

double ErrorOf(const Bounds& bounds, const std::string& name, const std::vector<float>& got,
               const std::vector<float>& golden) {
  if (name == "base_logits") return RelativeError(got, golden);
  if (name != "confidence" || !bounds.confidence_abs) return MaxError(got, golden);
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - golden[i]));
  }
  return worst;
}

double BoundOf(const Bounds& bounds, const std::string& name) {
  const std::string last = LastPart(name);
  // The two best biased logits move with the base logits.
  if (last == "base_logits" || last == "top2_values") return bounds.base_logits_rel;
  if (last == "confidence") return bounds.confidence_abs.value_or(bounds.other_max);
  if (last == "main_x" || last == "ring" || last == "k_block") return bounds.rows_max;
  return bounds.other_max;
}

bool IsChoice(const std::string& name) {
  const std::string last = LastPart(name);
  return last == "drafts" || last == "top2_ids" || last == "route_ids";
}

// Every named tensor of one golden file, in all rounds; experts, drafts and the two best ids must
// be equal.
template <class Ops>
void ExpectAgreement(const std::string& file, KvFakeQuant kv_fake_quant, const Bounds& bounds) {
  const GoldenTensors golden(file);
  int compared = 0;
  std::map<std::string, double> worst;
  std::vector<double> base_logits_errors;
  ReplayRounds<Ops>(kv_fake_quant, [&](const GoldenRound& round, auto& got) {
    const std::string prefix = round.name + ".";
    for (const std::string& full_name : golden.Names()) {
      if (full_name.rfind(prefix, 0) != 0) continue;
      const std::string name = full_name.substr(prefix.size());
      if (kComparedByOperation.contains(LastPart(name))) continue;
      ASSERT_TRUE(got.contains(name)) << full_name;
      const std::vector<float> expected = golden.Floats(full_name);
      ASSERT_EQ(got[name].size(), expected.size()) << full_name;
      ++compared;
      if (IsChoice(name)) {
        EXPECT_EQ(got[name], expected) << full_name;
        continue;
      }
      const double error = ErrorOf(bounds, name, got[name], expected);
      EXPECT_LE(error, BoundOf(bounds, name)) << full_name;
      double& largest = worst[LastPart(name)];
      largest = std::max(largest, error);
      if (name == "base_logits") base_logits_errors.push_back(error);
    }
  });
  ASSERT_EQ(base_logits_errors.size(), 21u);
  EXPECT_GT(compared, 21 * 5 + 35);
  std::sort(base_logits_errors.begin(), base_logits_errors.end());
  EXPECT_LE(base_logits_errors[10], bounds.base_logits_rel_median);
  for (const auto& [what, error] : worst)
    std::cout << "# " << file << " " << what << " " << error << "\n";
}

// With exact products everything else stands alone: float64's own bounds against the float32
// reference.
TEST(GoldenRounds, EverythingButTheProductsAgreesWithF32) {
  ExpectAgreement<CpuOps<float, DenseLinear>>("golden_f32.safetensors", KvFakeQuant::kNone,
                                              {.base_logits_rel = 6e-6,
                                               .base_logits_rel_median = 6e-6,
                                               .confidence_abs = 4e-5,
                                               .rows_max = 3e-6,
                                               .other_max = 9e-6});
}

TEST(GoldenRounds, EverythingButTheProductsAgreesWithF32AndFakeQuantization) {
  ExpectAgreement<CpuOps<float, DenseLinear>>(
      "golden_f32_fq.safetensors", KvFakeQuant::kReference,
      // README bounds confidence only without fake quantization; 100 times that, as for the base
      // logits, where a value lies on a rounding boundary of e4m3.
      {.base_logits_rel = 5e-4,
       .base_logits_rel_median = 6e-6,
       .confidence_abs = 4e-3,
       .rows_max = 3e-6,
       .other_max = 9e-6});
}

TEST(GoldenRounds, ExactIntegerPathAgreesWithF32) {
  ExpectAgreement<CpuOps<float>>("golden_f32.safetensors", KvFakeQuant::kNone,
                                 {.base_logits_rel = 4e-3,
                                  .base_logits_rel_median = 4e-3,
                                  .confidence_abs = std::nullopt,
                                  .rows_max = 8e-3,
                                  .other_max = 8e-3});
}

// One round's choices and base logits against a golden setting whose e4m3 and bf16 roundings
// amplify any difference: experts are compared while the golden routing margin is above 0.01 and
// nothing was routed differently before, drafts while the golden margin exceeds twice the round's
// largest logit error.
struct RoundDistance {
  bool is_rerouted = false;
  double base_logits_rel = 0;
  int experts_compared = 0;
  int drafts_compared = 0;
};

RoundDistance CompareRound(const GoldenTensors& golden, const GoldenRound& round,
                           std::map<std::string, std::vector<float>>& got) {
  RoundDistance distance;
  const std::string prefix = round.name + ".";
  for (int item = 0; item < 3 * kBlockRows && !distance.is_rerouted; ++item) {
    const int row = item % kBlockRows;
    const std::string at = "s" + std::to_string(item / kBlockRows) + ".";
    const auto experts = [row](const std::vector<float>& ids) {
      return std::set<float>(ids.begin() + row * 3, ids.begin() + row * 3 + 3);
    };
    const auto mine = experts(got[at + "route_ids"]);
    const auto theirs = experts(golden.Floats(prefix + at + "route_ids"));
    if (golden.Floats(prefix + at + "route_margin")[row] > 0.01) {
      EXPECT_EQ(mine, theirs) << prefix << at << row;
      ++distance.experts_compared;
    }
    distance.is_rerouted = mine != theirs;
  }
  const std::vector<float> expected = golden.Floats(prefix + "base_logits");
  distance.base_logits_rel = RelativeError(got["base_logits"], expected);
  if (distance.is_rerouted) return distance;
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest =
        std::max(largest, std::fabs(static_cast<double>(got["base_logits"][i]) - expected[i]));
  }
  const std::vector<float> values = golden.Floats(prefix + "top2_values");
  const std::vector<float> drafts = golden.Floats(prefix + "drafts");
  for (int i = 0; i < kBlockRows; ++i) {
    if (values[2 * i] - values[2 * i + 1] > 2 * largest) {
      EXPECT_EQ(got["drafts"][i], drafts[i]) << prefix << i;
      ++distance.drafts_compared;
    }
    // A different draft feeds the next position: what follows is not comparable.
    if (got["drafts"][i] != drafts[i]) break;
  }
  return distance;
}

template <class Ops>
void ExpectNearFakeQuantized() {
  const GoldenTensors golden("golden_f32_fq.safetensors");
  int rounds = 0, rerouted = 0, experts = 0, drafts = 0;
  double worst = 0;
  ReplayRounds<Ops>(KvFakeQuant::kReference, [&](const GoldenRound& round, auto& got) {
    const RoundDistance distance = CompareRound(golden, round, got);
    ++rounds;
    experts += distance.experts_compared;
    drafts += distance.drafts_compared;
    rerouted += distance.is_rerouted;
    if (distance.is_rerouted) return;
    EXPECT_LE(distance.base_logits_rel, 3e-2) << round.name;
    worst = std::max(worst, distance.base_logits_rel);
  });
  EXPECT_EQ(rounds, 21);
  EXPECT_LE(rerouted, 2);
  EXPECT_GE(experts, 250);
  EXPECT_GE(drafts, 70);
  std::cout << "# f32_fq: base logits rel " << worst << ", " << rerouted << " rounds rerouted, "
            << experts << " routings and " << drafts << " drafts compared\n";
}

// One step of e4m3 is 6 to 12 %: a value near a rounding boundary that the integer path's 0.03 %
// pushes over moves a round far more than 0.03 %, so README's bf16 row bounds these two, not its
// row for the integer path.
TEST(GoldenRounds, ExactIntegerPathStaysNearF32WithFakeQuantization) {
  ExpectNearFakeQuantized<CpuOps<float>>();
}

TEST(GoldenRounds, ProductStaysNearF32WithFakeQuantization) {
  ExpectNearFakeQuantized<CpuOps<Bf16>>();
}

// The reference's own bf16 run lies 2.8 to 5 % from its float32 run with the same fake
// quantization, because it rounds at every hand-over; the product rounds only what is stored, and
// lies near the float32 run. So its distance to the bf16 run cannot be below the bf16 run's own,
// and must not be noticeably above it.
TEST(GoldenRounds, ProductIsAsFarFromBf16AsTheUnroundedReferenceIs) {
  const GoldenTensors bf16("golden_bf16.safetensors");
  const GoldenTensors unrounded("golden_f32_fq.safetensors");
  int compared = 0;
  ReplayRounds<CpuOps<Bf16>>(std::nullopt, [&](const GoldenRound& round, auto& got) {
    const std::string name = round.name + ".base_logits";
    if (CompareRound(unrounded, round, got).is_rerouted) return;
    const double own = RelativeError(unrounded.Floats(name), bf16.Floats(name));
    EXPECT_LE(RelativeError(got["base_logits"], bf16.Floats(name)), 1.1 * own) << round.name;
    ++compared;
  });
  EXPECT_GE(compared, 19);
}

}  // namespace
}  // namespace tp2
