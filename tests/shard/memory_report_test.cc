// The specification's table "Memory per card in detail", from the sizes alone.
#include "libcore/shard/memory_report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "libcore/model/synthetic_shape.h"

namespace tp2 {
namespace {

struct Expected {
  MemoryItem item;
  double rank0_mib, rank1_mib, one_card_mib;
};

// As the specification prints it; lines that it sums are split as research note dspark-model,
// section 9, recomputes them.
constexpr Expected kTable[] = {
    {MemoryItem::kEmbedding, 1262.5, 1262.5, 1262.5},
    {MemoryItem::kHead, 237.3, 236.4, 473.7},
    {MemoryItem::kExperts, 1633.8, 1633.8, 3256.3},
    {MemoryItem::kDenseCut, 106.9, 106.9, 213.7},
    {MemoryItem::kDenseReplicated, 16.5, 16.5, 16.5},
    {MemoryItem::kMainProj, 46.9, 46.9, 46.9},
    {MemoryItem::kOutputProjection, 48.2, 48.2, 96.4},
    {MemoryItem::kMarkovEmbedding, 63.1, 63.1, 63.1},
    {MemoryItem::kMarkovHead, 31.6, 31.5, 63.1},
    {MemoryItem::kCachedRows, 1012.5, 1008.5, 2020.5},
    {MemoryItem::kNorms, 18.8, 18.8, 18.8},
    {MemoryItem::kConfidence, 0.0, 0.0, 0.0},  // 10 kB, on no line of the specification
    {MemoryItem::kWindows, 3.4, 3.4, 3.4},
};

double MiB(int64_t byte_count) { return static_cast<double>(byte_count) / (1 << 20); }

MemoryReport Report(int64_t max_positions) {
  const DrafterConfig& config = FindSyntheticShape("v41-flash")->config;
  auto report = ReportMemory(
      config, 2, [&config](const TensorRule& rule) { return MissionForm(rule, config); },
      {.max_positions = max_positions});
  EXPECT_TRUE(report.ok()) << report.status();
  return *report;
}

void ExpectTable(const MemoryReport& report, double rope_mib) {
  const auto expect = [&report](MemoryItem item, double rank0, double rank1, double one_card) {
    const MemoryLine& line = report.lines[static_cast<size_t>(item)];
    ASSERT_EQ(line.item, item);
    EXPECT_NEAR(MiB(line.rank_bytes[0]), rank0, 0.0501) << line.name;
    EXPECT_NEAR(MiB(line.rank_bytes[1]), rank1, 0.0501) << line.name;
    EXPECT_NEAR(MiB(line.one_card_bytes), one_card, 0.0501) << line.name;
  };
  for (const Expected& row : kTable) {
    expect(row.item, row.rank0_mib, row.rank1_mib, row.one_card_mib);
  }
  expect(MemoryItem::kRope, rope_mib, rope_mib, rope_mib);
}

TEST(MemoryReport, ReproducesTheSpecificationsTableAt327680Positions) {
  const MemoryReport report = Report(327680);
  ExpectTable(report, 80.5);
  // The sums of the itemized lines: 4562.0, 4557.0 and 7615.4 MiB.
  EXPECT_NEAR(MiB(report.rank_total_bytes[0]), 4562.0, 0.0501);
  EXPECT_NEAR(MiB(report.rank_total_bytes[1]), 4557.0, 0.0501);
  EXPECT_NEAR(MiB(report.one_card_total_bytes), 7615.4, 0.0501);
}

TEST(MemoryReport, RopeTableGrowsTo269MegabytesAt1048576Positions) {
  const MemoryReport report = Report(1048576);
  ExpectTable(report, 256.5);
  const int64_t rope = report.lines[static_cast<size_t>(MemoryItem::kRope)].rank_bytes[0];
  EXPECT_EQ(std::llround(static_cast<double>(rope) / 1e6), 269);
}

// What is cut adds up to the unsplit model plus what both ranks must repeat: suh of a column cut,
// svh of a row cut.
TEST(MemoryReport, RanksTogetherHoldTheModelAndItsReplicatedScales) {
  const MemoryReport report = Report(327680);
  const DrafterConfig& c = FindSyntheticShape("v41-flash")->config;
  const MemoryLine& head = report.lines[static_cast<size_t>(MemoryItem::kHead)];
  EXPECT_EQ(head.rank_bytes[0] + head.rank_bytes[1], head.one_card_bytes + 2 * c.dim);
  const MemoryLine& experts = report.lines[static_cast<size_t>(MemoryItem::kExperts)];
  EXPECT_EQ(experts.rank_bytes[0] + experts.rank_bytes[1],
            experts.one_card_bytes + int64_t{c.stages} * c.experts * 3 * 2 * c.dim);
}

TEST(MemoryReport, WidthsComeFromTheFilesWhenTheyAreThere) {
  const SyntheticShape& mixed = *FindSyntheticShape("tiny-mixed");
  TensorView trellis;
  trellis.name = "head.trellis";
  trellis.shape = {16, 80, 16 * 3};
  // Everything else is missing, which is an error and not a default.
  EXPECT_FALSE(FormsOf(mixed.config, {trellis}).ok());
  std::vector<TensorView> tensors;
  for (const TensorRule& rule : ExpectedTensors(mixed.config)) {
    if (rule.storage != Storage::kExl3) continue;
    trellis.name = rule.name + ".trellis";
    trellis.shape = {rule.inputs() / 16, rule.outputs() / 16, 16 * 3};
    tensors.push_back(trellis);
  }
  const auto forms = FormsOf(mixed.config, tensors);
  ASSERT_TRUE(forms.ok()) << forms.status();
  const auto report = ReportMemory(mixed.config, 1, *forms, {});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->lines[static_cast<size_t>(MemoryItem::kHead)].one_card_bytes,
            256 * 1280 * 3 / 8 + 2 * (256 + 1280));
}

}  // namespace
}  // namespace tp2
