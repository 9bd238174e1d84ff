// The audit finds one bit in any replicated tensor, and nothing when there is nothing. Names carry
// "Thread": host-pair runs two.
#include "libcore/parity/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libcore/drafter/make_engine.h"
#include "tests/support/temp_model.h"

namespace tp2 {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::unique_ptr<StepEngine> NewEngine(const TempModel& model, const char* mode) {
  auto engine = MakeEngine({.model_dir = model.dir(), .backend = "cpu", .mode = mode});
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

TEST(AuditThread, RanksHoldTheSameStateAfterEveryRound) {
  const TempModel model("tiny");
  for (const char* mode : {"emulated", "host-pair"}) {
    const auto result = RunAudit(*NewEngine(model, mode), {.rounds = 9, .every = 4});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->difference, "") << mode;
    EXPECT_EQ(result->audits, 3);  // after rounds 4, 8 and the last one
    EXPECT_GT(result->bytes, 0);
  }
}

TEST(AuditThread, OneBitInAnyTensorIsFoundAndNamed) {
  const TempModel model("tiny");
  // Each time another engine: a changed row of a ring stays.
  for (const char* tensor : {"tokens", "ring 0", "ring 2", "streams", "y", "block_kv"}) {
    const auto result = RunAudit(*NewEngine(model, "host-pair"), {.rounds = 3, .plant = tensor});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->difference, StartsWith(std::string(tensor) + " element"));
    EXPECT_THAT(result->difference, HasSubstr("after round 2"));
  }
}

TEST(AuditThread, UnknownTensorsAndBitsBeyondTheEndAreRefused) {
  const TempModel model("tiny");
  const std::unique_ptr<StepEngine> engine = NewEngine(model, "emulated");
  EXPECT_EQ(engine->FlipReplicaBit("rings", 0).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(engine->FlipReplicaBit("tokens", 1 << 20).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(engine->FlipReplicaBit("tokens", -1).code(), absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace tp2
